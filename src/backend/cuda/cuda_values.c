/* Parameters and tensors between their order on the host and their storage on the device; loads on their way. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_int.h"

/* [out][in][points] <-> [out][points][in] */
static void filter_turn(float *to, const float *from, const struct shape *s, bool import)
{
    int64_t in = s->d[1], pts = shape_count(s) / s->d[0] / in;
    for (int64_t o = 0; o < s->d[0]; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t p = 0; p < pts; p++) {
                int64_t plain = (o * in + i) * pts + p, last = (o * pts + p) * in + i;
                to[import ? last : plain] = from[import ? plain : last];
            }
}

/* Both take host memory for storage, too: it has the device's form. */
int cuda_param_import(struct be *b, int param, void *storage, const void *plain, struct err *e)
{
    const struct format *f = &b->s->param[param];
    const struct shape *shape = &b->g->param[param].shape;
    float *turned = NULL, *narrow = NULL;
    int64_t large = -1;
    if (f->layout == LAYOUT_LAST) filter_turn(turned = mem_alloc(graph_param_bytes(b->g, param)), plain, shape, true);
    const void *x = turned ? turned : plain;
    if (select_narrows(b->s, param)) {
        large = format_narrow(f, shape, x, narrow = mem_alloc(format_bytes(f, shape)));
        x = narrow;
    }
    const int bad = large >= 0 ? err_set(e, E_DATA, "%s: a value is too large for bf16 (train.frozen_type)",
                                         b->g->param[param].name)
                               : cuda_copy(b, storage, x, format_bytes(f, shape), e);
    free(turned);
    free(narrow);
    return bad;
}

int cuda_param_export(struct be *b, int param, void *plain, const void *storage, struct err *e)
{
    const struct format *f = &b->s->param[param];
    const struct shape *shape = &b->g->param[param].shape;
    const bool last = f->layout == LAYOUT_LAST, narrow = select_narrows(b->s, param);
    float *turned = last ? mem_alloc(graph_param_bytes(b->g, param)) : plain;
    void *stored = narrow ? mem_alloc(format_bytes(f, shape)) : turned;
    const int bad = cuda_copy(b, stored, storage, format_bytes(f, shape), e);
    if (!bad && narrow) format_widen(f, shape, stored, turned);
    if (!bad && last) filter_turn(plain, turned, shape, false);
    if (narrow) free(stored);
    if (last) free(turned);
    return bad;
}

static bool as_loaded(const struct be *b, int tensor)
{
    const struct tensor *t = &b->g->tensor[tensor];
    return b->s->tensor[tensor].type == t->type &&
           (t->type != F32 || points(b, tensor) == 1 || b->s->tensor[tensor].layout == LAYOUT_PLAIN);
}

static size_t plain_size(const struct be *b, int tensor, int n)
{
    return count(b, tensor, n) * dtype_bytes(b->g->tensor[tensor].type);
}

/* Values of inner tensors, which only tests import, use the first input's way. */
static int way_of(const struct be *b, int tensor)
{
    int i = graph_input_find(b->g, tensor);
    return i < 0 ? 0 : i;
}

int cuda_load_open(struct be *b, int tensor, struct err *e)
{
    struct ways *k = &b->ways[way_of(b, tensor)];
    for (int i = 0; i < WAYS; i++) {
        struct way *w = &k->way[i];
        if (w->host) continue;                           /* training and evaluation load the same tensors */
        if (cuda_check(e, "pinned memory", cudaMallocHost((void **)&w->host, k->bytes)) ||
            cuda_check(e, "device memory", cuda_take(b, (void **)&w->at, k->bytes)) || cuda_event_new(&w->sent, e) ||
            cuda_event_new(&w->taken, e))
            return -1;
    }
    return 0;
}

/* On the copy stream, because the device may still compute with earlier loads. */
int cuda_tensor_send(struct be *b, int tensor, int n, const void *plain, int *ticket, struct err *e)
{
    size_t bytes = plain_size(b, tensor, n);
    int at = way_of(b, tensor);
    struct ways *k = &b->ways[at];
    struct way *w = &k->way[k->next];
    if (bytes > k->bytes || !w->host) return err_set(e, E_INTERNAL, "%s is not loaded here", b->g->tensor[tensor].name);
    if (w->busy && (cuda_check(e, "copying to the device", cudaEventSynchronize(w->sent)) ||
                    cuda_check(e, "copying to the device", cudaStreamWaitEvent(b->copy, w->taken, 0))))
        return -1;
    memcpy(w->host, plain, bytes);
    if (cuda_check(e, "copying to the device",
                   cudaMemcpyAsync(w->at, w->host, bytes, cudaMemcpyHostToDevice, b->copy)) ||
        cuda_check(e, "copying to the device", cudaEventRecord(w->sent, b->copy)))
        return -1;
    w->busy = true;
    *ticket = at * WAYS + k->next;
    k->next = (k->next + 1) % WAYS;
    return 0;
}

/* From host order to a tensor's stored form. */
static int tensor_turn(struct be *b, int tensor, int n, const void *from, void *storage)
{
    const struct k_shape s = shape_of(b, tensor, n);
    return (padded(b, tensor) ? k_import_padded : k_import)(b->stream, &s, from, storage);
}

int cuda_tensor_take(struct be *b, int tensor, int n, void *storage, int ticket, struct err *e)
{
    struct way *w = &b->ways[ticket / WAYS].way[ticket % WAYS];
    if (cuda_check(e, "copying to the device", cudaStreamWaitEvent(b->stream, w->sent, 0))) return -1;
    int status = 0;
    if (storage && as_loaded(b, tensor))                 /* also classes, which have no channels */
        status = (int)cudaMemcpyAsync(storage, w->at, plain_size(b, tensor, n), cudaMemcpyDeviceToDevice, b->stream);
    else if (storage) status = tensor_turn(b, tensor, n, w->at, storage);
    return cuda_check(e, "import", status) || cuda_check(e, "import", cudaEventRecord(w->taken, b->stream)) ? -1 : 0;
}

int cuda_tensor_import(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e)
{
    int ticket;
    return cuda_load_open(b, tensor, e) || cuda_tensor_send(b, tensor, n, plain, &ticket, e) ||
                   cuda_tensor_take(b, tensor, n, storage, ticket, e)
               ? -1
               : 0;
}

/* Losses are exported without conversion. Exports of inner tensors are for tests, so their memory is taken only
 * then. */
int cuda_tensor_export(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e)
{
    size_t bytes = plain_size(b, tensor, n);
    void *at;
    if (as_loaded(b, tensor)) return cuda_down(b, plain, storage, bytes, e);
    if (!(at = cuda_alloc(b, bytes, e))) return -1;
    const struct k_shape s = shape_of(b, tensor, n);
    int status = (padded(b, tensor) ? k_export_padded : k_export)(b->stream, &s, storage, at);
    int bad = cuda_check(e, "export", status) || cuda_down(b, plain, at, bytes, e);
    cuda_free(b, at, bytes);
    return bad ? -1 : 0;
}
