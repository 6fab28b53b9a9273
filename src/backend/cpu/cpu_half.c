/* Kernels that compute on floats for tensors that are stored in bf16: each call widens what it reads, and rounds what
 * it writes. Both lie in the same order, so any layout will do. */
#include "backend/cpu/cpu_int.h"

struct half_kernel { struct be_kernel base; struct be_kernel *inner; };

static bool is_half(const struct be *b, int tensor) { return b->s->tensor[tensor].type == BF16; }

static size_t values_of(const struct be *b, const struct be_kernel *k, int tensor)
{
    return tensor_bytes(b, tensor, k->key.samples) / sizeof(float);
}

static void *copy_take(const struct be *b, const struct be_kernel *k, int tensor, struct carve *w)
{
    return carve(w, tensor_bytes(b, tensor, k->key.samples));
}

static const void *wide(const struct be *b, const struct be_kernel *k, int tensor, const void *p, struct carve *w)
{
    if (!p || !is_half(b, tensor)) return p;
    float *copy = copy_take(b, k, tensor, w);
    b->vec->widen(copy, p, values_of(b, k, tensor));
    return copy;
}

static int half_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct be_kernel *k = ((struct half_kernel *)base)->inner;
    const struct group *g = k->k;
    const bool forward = k->key.phase == PH_FWD;
    struct be_call d = *c;
    struct carve w = {c->work, 0};
    for (int i = 0; i < g->n_in; i++) d.in[i] = wide(b, k, g->in[i], c->in[i], &w);
    for (int i = 0; i < g->n_out; i++) {
        d.gouts[i] = wide(b, k, g->outs[i], c->gouts[i], &w);
        if (!forward) d.outs[i] = (void *)wide(b, k, g->outs[i], c->outs[i], &w);
        else if (is_half(b, g->outs[i])) d.outs[i] = copy_take(b, k, g->outs[i], &w);
    }
    for (int i = 0; i < g->n_in; i++) {
        if (!c->gin[i] || !is_half(b, g->in[i])) continue;
        d.gin[i] = copy_take(b, k, g->in[i], &w);
        d.gin_acc &= (uint8_t)~(1u << i);
    }
    d.work = (char *)c->work + cpu_half_work(b, k);
    if (k->run(b, k, &d, e)) return -1;
    for (int i = 0; forward && i < g->n_out; i++)
        if (d.outs[i] != c->outs[i]) b->vec->narrow(c->outs[i], d.outs[i], values_of(b, k, g->outs[i]), false);
    for (int i = 0; i < g->n_in; i++)
        if (d.gin[i] != c->gin[i])
            b->vec->narrow(c->gin[i], d.gin[i], values_of(b, k, g->in[i]), c->gin_acc >> i & 1);
    return 0;
}

static void half_close(struct be_kernel *base) { kernel_free(((struct half_kernel *)base)->inner); }

/* As if every pointer were given. */
size_t cpu_half_work(const struct be *b, const struct be_kernel *k)
{
    const struct group *g = k->k;
    const size_t in = k->key.phase == PH_BWD_DATA ? 2 : 1, out = k->key.phase == PH_FWD ? 1 : 2;
    size_t bytes = 0;
    for (int i = 0; i < g->n_in; i++)
        if (is_half(b, g->in[i])) bytes += in * size_align64(tensor_bytes(b, g->in[i], k->key.samples));
    for (int i = 0; i < g->n_out; i++)
        if (is_half(b, g->outs[i])) bytes += out * size_align64(tensor_bytes(b, g->outs[i], k->key.samples));
    return bytes;
}

struct be_kernel *cpu_half_make(struct be *b, struct be_kernel *inner)
{
    struct half_kernel *k = kernel_new(inner, sizeof *k);
    k->inner = inner;
    k->base.run = half_run;
    k->base.close = half_close;
    return &k->base;
}
