/* Kernels of groups whose frozen weights are stored in fewer bits: each call widens them first. What they read is then
 * the same as if the widened values were stored, bit by bit. */
#include <string.h>
#include "backend/cpu/cpu_int.h"

struct widen_kernel {
    struct be_kernel base;
    struct be_kernel *inner;
};

size_t cpu_widen_work(const struct be *b, const struct group *k)
{
    size_t bytes = 0;
    for (int i = 0; i < k->n_param; i++)
        if (select_narrows(b->s, k->param[i])) bytes += size_align64(graph_param_bytes(b->g, k->param[i]));
    return bytes;
}

/* Gradients of weights read no parameters. */
static int widen_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct be_kernel *k = ((struct widen_kernel *)base)->inner;
    struct be_call d = *c;
    char *work = c->work;
    for (int i = 0; i < k->k->n_param && base->key.phase != PH_BWD_WEIGHTS; i++) {
        const int param = k->k->param[i];
        if (!select_narrows(b->s, param)) continue;
        format_widen(&b->s->param[param], &b->g->param[param].shape, c->param[i], (float *)work);
        d.param[i] = work;
        work += size_align64(graph_param_bytes(b->g, param));
    }
    d.work = (char *)c->work + cpu_widen_work(b, k->k);
    return k->run(b, k, &d, e);
}

static void widen_close(struct be_kernel *base) { kernel_free(((struct widen_kernel *)base)->inner); }

struct be_kernel *cpu_widen_make(struct be *b, struct be_kernel *inner)
{
    struct widen_kernel *k = kernel_new(inner, sizeof *k);
    k->inner = inner;
    k->base.run = widen_run;
    k->base.close = widen_close;
    return &k->base;
}
