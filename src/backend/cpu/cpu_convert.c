/* A kernel whose tensors must all have one layout, run on tensors with other layouts: copies at the beginning of the
 * workspace, in the type that the kernel takes. */
#include <string.h>
#include "backend/cpu/cpu_int.h"

struct convert_kernel {
    struct be_kernel base;
    struct be_kernel *inner;
};

static bool differs(const struct be *b, const struct be_kernel *inner, int tensor)
{
    return b->g->tensor[tensor].type == F32 && tensor_lanes(b, tensor) != kernel_lanes(b, inner, tensor);
}

/* Bytes of an element as the kernel sees it: of widened copies, unless it takes bf16. */
static size_t element_of(const struct be *b, const struct be_kernel *k, int tensor)
{
    return k->half && cpu_is_half(b, tensor) ? sizeof(uint16_t) : sizeof(float);
}

static size_t copy_bytes(const struct be *b, const struct be_kernel *k, int tensor)
{
    return size_align64(tensor_bytes(b, tensor, k->key.samples) / sizeof(float) * element_of(b, k, tensor));
}

static void *copy_take(const struct be *b, const struct be_kernel *k, int tensor, char **work)
{
    void *p = *work;
    *work += copy_bytes(b, k, tensor);
    return p;
}

/* From the tensor's layout to the kernel's, and back. */
static void copy_in(const struct be *b, const struct be_kernel *k, int tensor, void *dst, const void *src)
{
    const struct blocks s = tensor_blocks(b, tensor, k->key.samples);
    relay(dst, src, s, kernel_lanes(b, k, tensor), element_of(b, k, tensor), false);
}

static void copy_out(const struct be *b, const struct be_kernel *k, int tensor, void *dst, const void *src, bool acc)
{
    struct blocks s = tensor_blocks(b, tensor, k->key.samples);
    const int lanes = s.lanes;
    s.lanes = kernel_lanes(b, k, tensor);
    relay(dst, src, s, lanes, element_of(b, k, tensor), acc);
}

static const void *value_take(const struct be *b, const struct be_kernel *k, int tensor, const void *p, char **work)
{
    if (!p || !differs(b, k, tensor)) return p;
    void *copy = copy_take(b, k, tensor, work);
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
            bytes += (k->key.phase == PH_BWD_DATA ? 2 : 1) * copy_bytes(b, k, k->k->in[i]);
    if (differs(b, k, k->k->out)) bytes += (k->key.phase == PH_FWD ? 1 : 2) * copy_bytes(b, k, k->k->out);
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
    struct be_kernel *made = make ? make(b, &inner, e) : kernel_new(&inner, sizeof inner);
    if (!made) return NULL;
    struct convert_kernel *k = kernel_new(like, sizeof *k);
    k->inner = made;
    k->base.stored = made->stored;
    memcpy(k->base.name, made->name, sizeof made->name);
    k->base.run = convert_run;
    k->base.close = convert_close;
    return &k->base;
}
