/* A kernel whose tensors must all have one layout, run on tensors with other layouts: copies at the beginning of the
 * workspace. */
#include <string.h>
#include "backend/cpu/cpu_int.h"

struct convert_kernel {
    struct be_kernel base;
    struct be_kernel *inner;
};

static bool differs(const struct be *b, const struct be_kernel *inner, int tensor)
{
    return b->g->tensor[tensor].type == F32 && tensor_lanes(b, tensor) != inner->lanes;
}

static void *copy_take(const struct be *b, const struct be_kernel *k, int tensor, char **work)
{
    void *p = *work;
    *work += size_align64(tensor_bytes(b, tensor, k->key.samples));
    return p;
}

/* Converts a tensor to the kernel's layout, and back to its own: one of the two is plain. */
static void copy_in(const struct be *b, const struct be_kernel *k, int tensor, float *dst, const float *src)
{
    struct blocks s = tensor_blocks(b, tensor, k->key.samples);
    bool blocked = s.lanes > 1;
    if (!blocked) s.lanes = k->lanes;
    (blocked ? to_plain : to_blocked)(dst, src, s, false);
}

static void copy_out(const struct be *b, const struct be_kernel *k, int tensor, float *dst, const float *src, bool acc)
{
    struct blocks s = tensor_blocks(b, tensor, k->key.samples);
    bool blocked = k->lanes > 1;
    if (blocked) s.lanes = k->lanes;
    (blocked ? to_plain : to_blocked)(dst, src, s, acc);
}

static const void *value_take(const struct be *b, const struct be_kernel *k, int tensor, const void *p, char **work)
{
    if (!p || !differs(b, k, tensor)) return p;
    float *copy = copy_take(b, k, tensor, work);
    copy_in(b, k, tensor, copy, p);
    return copy;
}

static int convert_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct be_kernel *k = ((struct convert_kernel *)base)->inner;
    const struct group *g = k->k;
    struct be_call d = *c;
    char *work = c->work;
    bool forward = k->key.phase == PH_FWD;
    for (int i = 0; i < g->n_in; i++) {
        d.in[i] = value_take(b, k, g->in[i], c->in[i], &work);
        if (!c->gin[i] || !differs(b, k, g->in[i])) continue;
        d.gin[i] = copy_take(b, k, g->in[i], &work);
        d.gin_acc &= (uint8_t)~(1u << i);
    }
    d.gout = value_take(b, k, g->out, c->gout, &work);
    if (!forward) d.out = (void *)value_take(b, k, g->out, c->out, &work);
    else if (differs(b, k, g->out)) d.out = copy_take(b, k, g->out, &work);
    d.work = work;
    if (k->run(b, k, &d, e)) return -1;
    if (forward && d.out != c->out) copy_out(b, k, g->out, c->out, d.out, false);
    for (int i = 0; i < g->n_in; i++)
        if (d.gin[i] != c->gin[i]) copy_out(b, k, g->in[i], c->gin[i], d.gin[i], c->gin_acc >> i & 1);
    return 0;
}

static void convert_close(struct be_kernel *base) { kernel_free(((struct convert_kernel *)base)->inner); }

/* Workspace that copies may take: of all values and gradients. */
static size_t copies_bytes(const struct be *b, const struct be_kernel *k)
{
    size_t bytes = 0;
    for (int i = 0; i < k->k->n_in; i++)
        if (differs(b, k, k->k->in[i]))
            bytes += (k->key.phase == PH_BWD_DATA ? 2 : 1) * size_align64(tensor_bytes(b, k->k->in[i], k->key.samples));
    if (differs(b, k, k->k->out))
        bytes += (k->key.phase == PH_FWD ? 1 : 2) * size_align64(tensor_bytes(b, k->k->out, k->key.samples));
    return bytes;
}

struct be_kernel *cpu_convert_make(struct be *b, const struct be_kernel *like, int lanes, kernel_maker *make,
                                   struct err *e)
{
    struct be_kernel inner = *like;
    inner.lanes = lanes;
    const size_t copies = copies_bytes(b, &inner);
    inner.taken += copies;
    if (kernel_workspace(b, like, copies, e)) return NULL;
    struct be_kernel *made = make(b, &inner, e);
    if (!made) return NULL;
    struct convert_kernel *k = kernel_new(like, sizeof *k);
    k->inner = made;
    k->base.sums_in_order = made->sums_in_order;
    memcpy(k->base.name, made->name, sizeof made->name);
    k->base.run = convert_run;
    k->base.close = convert_close;
    return &k->base;
}
