/* Memory and values of host backends. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backend/host.h"
#include "backend/rules.h"
#include "optim/optim.h"

/* Whole pages from the system: zeroed, huge where they pay. Touched here so that no step takes a page fault. */
void *host_alloc(struct be *b, size_t bytes, struct err *e)
{
    size_t n = bytes ? bytes : 1;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        char want[32], have[32];
        uint64_t left = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        err_set(e, E_INTERNAL, "out of memory: %s wanted, %s free", text_bytes(bytes, want), text_bytes(left, have));
        return NULL;
    }
    madvise(p, n, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i += 4096) ((volatile char *)p)[i] = 0;
    return p;
}

void host_free(struct be *b, void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

int host_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e)
{
    if (bytes) memcpy(dst, src, bytes);
    return 0;
}

int host_done(struct be *b, struct err *e) { return 1; }

int host_update(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                struct err *e)
{
    for (int i = 0; i < n; i++) optim_list[optimizer]->update(&w[i], block);
    return 0;
}

int host_stats(const struct selection *sel, const struct be_stats *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct node *node = &sel->g->node[sel->group[s->of[i].group].node[0]];
        node->op->stats(&(struct op_stats){
            sel->g, node, s->deferred, s->n_mb, s->saved + (ptrdiff_t)i * s->n_mb, s->ns, s->of[i].param});
    }
    return 0;
}

/* ---- what is selected ------------------------------------------------------------------------ */

/* Copies of a parameter in floats: its gradient, and its values if they are widened. Frozen ones have no gradient; only
 * kernels that read what is stored have none of this room. */
static size_t param_copies(const struct selection *s, const struct group *k, int param)
{
    bool stored = s->g->param[param].frozen;
    for (int ph = 0; ph < PH_BWD_WEIGHTS; ph++) if (k->row[ph]) stored &= k->row[ph]->stored;
    return stored && k->row[PH_FWD] ? 0 : select_narrows(s, param) ? 2 : 1;
}

void host_sizes(const struct selection *s, struct group *k, size_t beside)
{
    size_t values = 0, floats = 0;
    for (int j = -k->n_out; j < k->n_in; j++) {
        const int t = j < 0 ? k->outs[-1 - j] : k->in[j];
        values += select_sample_bytes(s, t);
        floats += size_align64(host_tensor_bytes(s->g, t, 1));
    }
    k->workspace_bytes[0] = beside;
    for (int j = 0; j < k->n_param; j++)
        k->workspace_bytes[0] += param_copies(s, k, k->param[j]) * size_align64(graph_param_bytes(s->g, k->param[j]));
    k->workspace_bytes[1] = 2 * values;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (k->row[ph] && !k->row[ph]->pointwise && select_widens(s, k->row[ph], k))
            k->workspace_bytes[1] = 4 * floats;
}

static void sizes(const struct selection *s, struct group *k, size_t beside) { host_sizes(s, k, 4096); }

const struct select_rules host_rules = {.hardware = "cpu", .frozen = HOST_FROZEN, .sizes = sizes};

/* Plain loops on one core. */
const struct device_speed host_speed = {
    .flops = {[FP32] = 20, [BFLOAT16] = 20}, .near = 1.5, .mid = 1.5, .far = 1.5, .load = 1.5, HOST_SPEED};

/* ---- kernels and values ---------------------------------------------------------------------- */

size_t host_tensor_bytes(const struct graph *g, int tensor, int samples)
{
    return (size_t)samples * (size_t)shape_count(&g->tensor[tensor].shape) * dtype_bytes(g->tensor[tensor].type);
}

host_loop *host_pass(const struct op_kind *op, enum phase ph)
{
    return ph == PH_FWD ? op->forward : ph == PH_BWD_DATA ? op->backward_data : op->backward_weights;
}

void *carve(struct carve *w, size_t bytes)
{
    void *p = w->at ? w->at + w->used : NULL;
    w->used += size_align64(bytes);
    return p;
}

int host_param_import(const struct selection *s, int param, void *storage, const void *values, struct err *e)
{
    const struct param *p = &s->g->param[param];
    const struct format *f = &s->param[param];
    int64_t bad = -1;
    if (!select_narrows(s, param)) memcpy(storage, values, graph_param_bytes(s->g, param));
    else bad = format_narrow(f, &p->shape, values, storage);
    if (bad < 0) return 0;
    return err_set(e, E_DATA, "%s: the value %g is too large for %s (train.frozen_type)", p->name,
                   (double)((const float *)values)[bad], dtype_name(f->type));
}

void host_param_export(const struct selection *s, int param, void *values, const void *storage)
{
    const struct param *p = &s->g->param[param];
    if (!select_narrows(s, param)) memcpy(values, storage, graph_param_bytes(s->g, param));
    else format_widen(&s->param[param], &p->shape, storage, values);
}

/* ---- backends with plain tensors ------------------------------------------------------------- */

void host_describe(struct device *d, const char *name, const char *library)
{
    memset(d, 0, sizeof *d);
    snprintf(d->backend, sizeof d->backend, "%s", name);
    snprintf(d->isa, sizeof d->isa, "generic");
    snprintf(d->library, sizeof d->library, "%s", library);
    d->rules = &host_rules;
    d->speed = &host_speed;
    d->block = 1;
    d->threads = 1;
    d->precise[FP32] = true;
}

void host_open(struct host *h, const struct selection *s)
{
    h->s = s;
    h->g = s->g;
}

int host_tensor_copy(struct be *b, int tensor, int n, void *dst, const void *src, struct err *e)
{
    return host_copy(b, dst, src, host_tensor_bytes(((const struct host *)b)->g, tensor, n), e);
}
