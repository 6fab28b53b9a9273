/* Sliding windows over up to three spatial dimensions: geometry for convolution and pooling. Pure. */
#ifndef OPS_WINDOW_H
#define OPS_WINDOW_H
#include "model/op.h"

struct window { int64_t in[3], out[3], k[3], s[3], p[3], d[3]; };  /* missing dimensions have size 1 */

/* Number of spatial dimensions after the input's channels. -1: not one to three, or an attribute (A_INTS) has neither
 * one value nor one per dimension. */
static inline int space_check(const struct node *node, const struct shape *in, struct err *e)
{
    const int n = in->n - 1;
    if (n < 1 || n > 3)
        return err_set(e, E_CONF, "the input needs channels and one to three spatial dimensions, it has %d dimensions",
                       in->n);
    for (int a = 0; node->op->attr[a].name; a++)
        if (node->op->attr[a].type == A_INTS && node->attr[a].n != 1 && node->attr[a].n != n)
            return err_set(e, E_CONF, "%d values for %d spatial dimensions", node->attr[a].n, n);
    return n;
}
static inline int64_t space_value(const struct attr_value *v, int dim) { return v->i[v->n == 1 ? 0 : dim]; }
static inline void space_sizes(const struct shape *s, int64_t to[3])
{
    for (int i = 0, j = s->n - 3; i < 3; i++, j++) to[i] = j < 1 ? 1 : s->d[j];
}

/* Kernel, stride, padding and, if there is one, dilation from a node's attributes. */
static inline int window_attrs(const struct node *node, const struct shape *in, struct window *w, struct err *e)
{
    /* usual: the value for missing dimensions and attributes */
    const struct { const char *name; int64_t usual, *to; } all[] = {
        {"kernel", 1, w->k}, {"stride", 1, w->s}, {"padding", 0, w->p}, {"dilation", 1, w->d}};
    const int n = space_check(node, in, e);
    for (int a = 0; n > 0 && a < 4; a++) {
        const struct attr_value *v = node_attr(node, all[a].name);
        for (int i = 0, j = n - 3; i < 3; i++, j++) all[a].to[i] = !v || j < 0 ? all[a].usual : space_value(v, j);
    }
    return n < 0 ? -1 : 0;
}

/* Fills w for a node and the shape of its input. PyTorch's formula: out = floor((in + 2p - d(k-1) - 1) / s) + 1. */
static inline int window_make(const struct node *node, const struct shape *in, struct window *w, struct err *e)
{
    if (window_attrs(node, in, w, e)) return -1;
    space_sizes(in, w->in);
    for (int i = 0; i < 3; i++) {
        int64_t span = w->d[i] * (w->k[i] - 1) + 1, space = w->in[i] + 2 * w->p[i];
        if (span > space)
            return err_set(e, E_CONF, "kernel %lld is larger than the padded input %lld", (long long)span,
                           (long long)space);
        w->out[i] = (space - span) / w->s[i] + 1;
    }
    return 0;
}

/* Fills w for a transposed convolution (with attribute output_padding) and the shape of its input. w is the window of
 * the convolution whose input gradient it computes, so w->out is the node's input and w->in its output. PyTorch's
 * formula: out = (in - 1) s - 2p + d(k-1) + output_padding + 1. */
static inline int window_make_transposed(const struct node *node, const struct shape *in, struct window *w,
                                         struct err *e)
{
    const struct attr_value *more = node_attr(node, "output_padding");
    if (window_attrs(node, in, w, e)) return -1;
    space_sizes(in, w->out);
    for (int i = 0, j = in->n - 4; i < 3; i++, j++) {
        int64_t saved = j < 0 ? 0 : space_value(more, j);
        w->in[i] = (w->out[i] - 1) * w->s[i] - 2 * w->p[i] + w->d[i] * (w->k[i] - 1) + saved + 1;
        if (saved >= w->s[i] && saved > 0)
            return err_set(e, E_CONF, "output_padding %lld is not smaller than the stride %lld", (long long)saved,
                           (long long)w->s[i]);
        if (w->in[i] < 1) return err_set(e, E_CONF, "padding %lld leaves no output", (long long)w->p[i]);
    }
    return 0;
}

/* For a convolution or a transposed one. */
static inline int window_of_product(const struct node *node, const struct shape *in, struct window *w, struct err *e)
{
    return (node->op->category == OP_CONV_TRANSPOSED ? window_make_transposed : window_make)(node, in, w, e);
}

static inline int64_t window_size(const int64_t v[3]) { return v[0] * v[1] * v[2]; }
static inline int64_t window_in_size(const struct window *w) { return window_size(w->in); }
static inline int64_t window_out_size(const struct window *w) { return window_size(w->out); }
static inline int64_t window_k_size(const struct window *w) { return window_size(w->k); }

/* Offset in the input plane of kernel position q at output position o, or -1 in the padding. */
static inline int64_t window_at(const struct window *w, int64_t o, int64_t q)
{
    int64_t at = 0;
    int64_t o3[3] = {o / (w->out[1] * w->out[2]), o / w->out[2] % w->out[1], o % w->out[2]};
    int64_t q3[3] = {q / (w->k[1] * w->k[2]), q / w->k[2] % w->k[1], q % w->k[2]};
    for (int i = 0; i < 3; i++) {
        int64_t x = o3[i] * w->s[i] - w->p[i] + q3[i] * w->d[i];
        if (x < 0 || x >= w->in[i]) return -1;
        at = at * w->in[i] + x;
    }
    return at;
}

/* The inverse: the output position whose kernel position q is at offset `at` of the input plane, or -1. */
static inline int64_t window_from(const struct window *w, int64_t at, int64_t q)
{
    int64_t o = 0;
    int64_t a3[3] = {at / (w->in[1] * w->in[2]), at / w->in[2] % w->in[1], at % w->in[2]};
    int64_t q3[3] = {q / (w->k[1] * w->k[2]), q / w->k[2] % w->k[1], q % w->k[2]};
    for (int i = 0; i < 3; i++) {
        int64_t x = a3[i] + w->p[i] - q3[i] * w->d[i];
        if (x < 0 || x % w->s[i] || x / w->s[i] >= w->out[i]) return -1;
        o = o * w->out[i] + x / w->s[i];
    }
    return o;
}

/* ---- pooling ---------------------------------------------------------------------------------- */

/* The window of a call, and the number of planes: samples times channels. */
static inline int64_t pool_of_call(const struct op_call *c, struct window *w)
{
    const struct shape *in = &c->g->tensor[c->node->in[0]].shape;
    window_make(c->node, in, w, NULL);
    return c->n * in->d[0];
}

static inline int pool_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    if (window_make(n, in[0], &w, e)) return -1;
    for (int i = 0; i < 3; i++)
        if (2 * w.p[i] > w.k[i]) return err_set(e, E_CONF, "padding is more than half of the kernel");
    for (int i = 1; i < in[0]->n; i++) f->out.d[i] = w.out[i + 3 - in[0]->n];
    return 0;
}
#endif
