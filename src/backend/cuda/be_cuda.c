/* The GPU backend: cuDNN and cuBLASLt behind dnn.h for convolutions and matrix products, own kernels (kernels/) for the
 * rest.
 *
 * Everything is enqueued on one stream, the compute stream. The host waits only where it needs values (copy to the
 * host, exports). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_int.h"
#include "backend/rules.h"

extern const struct be_ops be_cuda;
struct be_graph { cudaGraphExec_t exec; };

int cuda_check(struct err *e, const char *what, int status)
{
    if (status == cudaSuccess) return 0;
    return err_set(e, E_DEVICE, "%s: %s", what, cudaGetErrorString((cudaError_t)status));
}

/* The user's override: NVIDIA's libraries use TF32, or do not, whatever the backend requests. */
static const char *tf32_override(void)
{
    const char *v = getenv("NVIDIA_TF32_OVERRIDE");
    return v && *v ? v : NULL;
}

/* Libraries read the variable at any time, so removing it from the environment might come too late. */
static int override_refuse(enum precision p, struct err *e)
{
    const char *v = tf32_override();
    bool off = v && strcmp(v, "0") == 0;
    if (!v || p == BFLOAT16 || off == (p == FP32)) return 0;
    return err_set(e, E_CONF,
                   "NVIDIA_TF32_OVERRIDE=%s in the environment %s TF32, and train.precision is \"%s\": unset it, or "
                   "choose the other precision",
                   v, off ? "forbids" : "forces", precision_name[p]);
}

/* The properties that are the same on every GPU. */
static void any_gpu(struct device *d)
{
    memset(d, 0, sizeof *d);
    snprintf(d->backend, sizeof d->backend, "cuda");
    d->block = 1;
    d->rules = &cuda_rules;
    d->speed = &cuda_speed;
    d->load_ways = WAYS;
    d->threads = 1;
    for (int i = 0; i < PRECISIONS; i++) d->precise[i] = true;
}

static int cuda_describe(int unit, struct device *d, struct err *e)
{
    struct cuda_device c;
    struct text versions = {0}, beside = {0};
    any_gpu(d);
    if (cuda_device_get(unit, &c, e)) return -1;
    if (c.major < 8)
        return err_set(e, E_DEVICE, "%s: this program's kernels need compute capability 8.0, the GPU has %d.%d", c.name,
                       c.major, c.minor);
    snprintf(d->isa, sizeof d->isa, "%.60s sm_%d%d", c.name, c.major, c.minor);
    dnn_versions(&versions, &beside);
    if (tf32_override()) text_add(&beside, ", NVIDIA_TF32_OVERRIDE=%.8s", tf32_override());
    snprintf(d->library, sizeof d->library, "CUDA %d.%d, %s", c.runtime / 1000, c.runtime % 1000 / 10, versions.s);
    snprintf(d->beside, sizeof d->beside, "driver %d.%d, %s", c.driver / 1000, c.driver % 1000 / 10, beside.s);
    text_free(&versions);
    text_free(&beside);
    return 0;
}

static void cuda_suppose(struct device *d)
{
    any_gpu(d);
    d->supposed = true;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int device_open(struct be *b, struct err *e)
{
    int least, greatest;
    if (cuda_check(e, "choosing the GPU", cudaSetDevice(b->unit)) ||
        cuda_check(e, "priorities of streams", cudaDeviceGetStreamPriorityRange(&least, &greatest)) ||
        cuda_check(e, "a stream", cudaStreamCreateWithPriority(&b->stream, cudaStreamNonBlocking, least)) ||
        cuda_check(e, "a stream", cudaStreamCreateWithPriority(&b->copy, cudaStreamNonBlocking, greatest)) ||
        cuda_check(e, "device memory", cuda_take(b, &b->sums, k_sum_work())) ||
        cuda_check(e, "device memory", cuda_take(b, (void **)&b->counters, K_COUNTERS * sizeof *b->counters)) ||
        cuda_check(e, "device memory", cudaMemsetAsync(b->counters, 0, K_COUNTERS * sizeof *b->counters, b->stream)))
        return -1;
    for (int i = 0; i < UP_SLOTS; i++)
        if (cuda_check(e, "pinned memory", cudaMallocHost((void **)&b->up[i].at, UP_BYTES)) ||
            cuda_event_new(&b->up[i].sent, e))
            return -1;
    return dnn_open(b->unit, NULL, b->stream, b->s->dev.kernels, &b->dnn, e);
}

static int cuda_open(const struct selection *s, int threads, int unit, struct be **out, struct err *e)
{
    struct be *b = mem_alloc(sizeof *b);
    b->s = s;
    b->g = s->g;
    b->unit = unit;
    for (int i = 0; i < b->g->n_inputs; i++) {
        size_t bytes = select_load_bytes(s, b->g->input[i].tensor);
        b->ways[i].bytes = bytes > LEAST_WAY ? bytes : (size_t)LEAST_WAY;
    }
    if (override_refuse(s->dev.precision, e)) { be_cuda.close(b); return -1; }
    if (device_open(b, e)) { be_cuda.close(b); return err_where(e, "GPU %d", unit); }
    *out = b;
    return 0;
}

static void cuda_close(struct be *b)
{
    for (int i = 0; i < BE_MOVERS; i++) if (b->mover[i]) cudaStreamDestroy(b->mover[i]);
    if (b->copy) cudaStreamSynchronize(b->copy);
    if (b->stream) cudaStreamSynchronize(b->stream);
    for (int i = 0; i < b->kernel.n; i++) free(b->kernel.v[i]);
    for (int i = 0; i < b->graph.n; i++) {
        cudaGraphExecDestroy(b->graph.v[i]->exec);
        free(b->graph.v[i]);
    }
    for (int i = 0; i < b->mirror.n; i++) {
        cudaFree(b->mirror.v[i].at);
        free(b->mirror.v[i].host);
    }
    for (int i = 0; i < b->n_marks; i++) cudaEventDestroy(b->mark[i]);
    for (int i = 0; i < UP_SLOTS; i++) {
        if (b->up[i].sent) cudaEventDestroy(b->up[i].sent);
        if (b->up[i].at) cudaFreeHost(b->up[i].at);
    }
    for (int i = 0; i < b->fence.n; i++) cudaEventDestroy(b->fence.v[i]);
    for (int i = 0; i < b->pinned.n; i++) cudaFreeHost(b->pinned.v[i]);
    for (int i = 0; i < MAX_INPUTS * WAYS; i++) {
        struct way *w = &b->ways[i / WAYS].way[i % WAYS];
        if (w->sent) cudaEventDestroy(w->sent);
        if (w->taken) cudaEventDestroy(w->taken);
        if (w->host) cudaFreeHost(w->host);
        cudaFree(w->at);
    }
    dnn_close(b->dnn);
    cudaFree(b->sums);
    cudaFree(b->counters);
    if (b->copy) cudaStreamDestroy(b->copy);
    if (b->stream) cudaStreamDestroy(b->stream);
    vec_free(&b->kernel);
    vec_free(&b->graph);
    vec_free(&b->mirror);
    vec_free(&b->fence);
    vec_free(&b->pinned);
    free(b->mark);
    free(b->running);
    free(b);
}

/* ---- kernels --------------------------------------------------------------------------------- */

void *cuda_kernel_new(const struct be_kernel *like, size_t size)
{
    struct be_kernel *k = mem_alloc(size);
    *k = *like;
    return k;
}

int cuda_kernel_workspace(const struct be *b, const struct be_kernel *k, size_t bytes, struct err *e)
{
    size_t have = group_workspace(k->k, k->key.samples);
    if (bytes <= have) return 0;
    return err_set(e, E_INTERNAL, "%s: kernel needs %zu bytes of workspace, selected are %zu", k->node->name, bytes,
                   have);
}

static int cuda_prepare(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e)
{
    if ((*out = be_kernel_find(b->kernel.v, b->kernel.n, key))) return 0;
    const struct group *g = &b->s->group[key->group];
    const struct kernel_row *row = select_row(b->s, g, key->phase, NULL, NULL);   /* the selection found one */
    struct be_kernel like = {.key = *key, .k = g, .node = &b->g->node[g->node[0]], .run = row->run};
    struct be_kernel *k = row->make ? row->make(b, &like, e) : cuda_kernel_new(&like, sizeof like);
    if (!k) return -1;
    *vec_push(&b->kernel) = k;
    *out = k;
    return 0;
}

static int cuda_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    if (c->n != k->key.samples)
        return err_set(e, E_INTERNAL, "kernel for %d samples called with %d", k->key.samples, c->n);
    return k->run(b, k, c, e);
}

static int cuda_pack(struct be *b, int group, void *const *param, void *packed, struct err *e)
{
    const struct group *k = &b->s->group[group];
    size_t n = (size_t)shape_count(&b->g->param[k->param[0]].shape);
    int in = k->in[0], c = channels(b, in);
    if (!k->packed_apart) return cuda_check(e, "rounding weights", k_to_bf16(b->stream, n, param[0], packed));
    const struct k_shape s = {K_BF16, (int64_t)n / c, 1, c};
    return cuda_check(e, "rounding weights", k_import_padded(b->stream, &s, param[0], packed));
}

/* Each distinct layer once: dnn_measure skips what its table already has. */
static int cuda_tune(const struct selection *s, int unit, const int *sizes, int n, struct text *table, struct err *e)
{
    struct be *b;
    int bad = 0;
    if (cuda_open(s, 1, unit, &b, e)) return -1;
    for (int i = 0; i < n && !bad; i++)
        for (int g = 0; g < s->n_groups && !bad; g++)
            for (int ph = 0; ph < PH_COUNT && !bad; ph++)
                bad = cuda_product_tune(b, &(struct be_key){g, (enum phase)ph, sizes[i], true}, table, e);
    cuda_close(b);
    return bad;
}

/* ---- sums and steps --------------------------------------------------------------------------- */

static int cuda_add(struct be *b, float *y, const float *x, size_t n, struct err *e)
{
    return cuda_check(e, "adding gradients", k_copy(b->stream, K_F32, n, x, y, true));
}

static int cuda_sumsq(struct be *b, const float *x, size_t n, double *out, struct err *e)
{
    return cuda_check(e, "gradient norm", k_sum_squares(b->stream, x, n, out, b->sums, b->counters));
}

static int cuda_update(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                       struct err *e)
{
    size_t total = 0;
    if (!n) return 0;
    for (int i = 0; i < n; i++) total += w[i].n;
    const struct be_weight *at = cuda_mirror(b, w, w, (size_t)n * sizeof *w, e);
    return at ? cuda_check(e, "optimizer", k_update(b->stream, optimizer, at, n, total, block)) : -1;
}

/* ---- the stream -------------------------------------------------------------------------------- */

static int cuda_done(struct be *b, struct err *e)
{
    cudaError_t status = cudaStreamQuery(b->stream);
    if (status == cudaErrorNotReady) {
        /* no failure, but CUDA would return it from the next launch */
        cudaGetLastError();
        return 0;
    }
    return cuda_check(e, "the device", status) ? -1 : 1;
}

static void *cuda_stream(struct be *b) { return b->stream; }
static int cuda_spin(struct be *b, uint64_t ns, struct err *e)
{
    return cuda_check(e, "blocking the stream", k_hold(b->stream, ns));
}

static int cuda_event_reserve(struct be *b, int n, struct err *e)
{
    b->mark = mem_alloc((size_t)n * sizeof *b->mark);
    for (; b->n_marks < n; b->n_marks++)
        if (cuda_check(e, "an event", cudaEventCreate(&b->mark[b->n_marks]))) return -1;
    return 0;
}

static int cuda_event_record(struct be *b, int i, struct err *e)
{
    return cuda_check(e, "marking time", cudaEventRecord(b->mark[i], b->stream));
}

static double cuda_event_elapsed(struct be *b, int i, int j)
{
    float ms = 0;
    return cudaEventElapsedTime(&ms, b->mark[i], b->mark[j]) == cudaSuccess ? 1e6 * (double)ms : 0;
}

static int cuda_capture_begin(struct be *b, struct err *e)
{
    return cuda_check(e, "recording", cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeRelaxed));
}

static int cuda_capture_end(struct be *b, struct be_graph **out, struct err *e)
{
    cudaGraph_t graph = NULL;
    cudaError_t status = cudaStreamEndCapture(b->stream, &graph);
    bool never = status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
    if (!out || status != cudaSuccess) {
        if (graph) cudaGraphDestroy(graph);
        cudaGetLastError();                              /* the reason for the break-off is no error of the next call */
        cuda_check(e, "recording", status);
        return status == cudaSuccess ? 0 : never ? 1 : -1;
    }
    struct be_graph *g = mem_alloc(sizeof *g);
    int bad = cuda_check(e, "recording", cudaGraphInstantiate(&g->exec, graph, 0));
    cudaGraphDestroy(graph);
    if (bad) { free(g); return -1; }
    *vec_push(&b->graph) = g;
    *out = g;
    return 0;
}

static int cuda_replay(struct be *b, struct be_graph *g, struct err *e)
{
    return cuda_check(e, "replaying", cudaGraphLaunch(g->exec, b->stream));
}

const struct be_ops be_cuda = {
    .name = "cuda",
    .text = "NVIDIA GPUs, by cuDNN, cuBLASLt and own kernels",
    .describe = cuda_describe,
    .suppose = cuda_suppose,
    .unit = cuda_device_pick,
    .bus = cuda_device_bus,
    .tune = cuda_tune,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .free_memory = cuda_free_memory,
    .taken = cuda_taken,
    .prepare = cuda_prepare,
    .run = cuda_run,
    .pack = cuda_pack,
    .param_import = cuda_param_import,
    .param_export = cuda_param_export,
    .add = cuda_add,
    .sumsq = cuda_sumsq,
    .update = cuda_update,
    .packs = true,
    .stats = cuda_stats,
    .tensor_import = cuda_tensor_import,
    .load_open = cuda_load_open,
    .tensor_send = cuda_tensor_send,
    .tensor_take = cuda_tensor_take,
    .tensor_export = cuda_tensor_export,
    .done = cuda_done,
    .stream = cuda_stream,
    .event_reserve = cuda_event_reserve,
    .event_record = cuda_event_record,
    .spin = cuda_spin,
    .event_elapsed = cuda_event_elapsed,
    .pinned = cuda_pinned,
    .fence = cuda_fence,
    .passed = cuda_passed,
    .move = cuda_move,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
};
