/* Windows of adaptive pooling, for the operator and backends. */
#ifndef OPS_ADAPTIVE_H
#define OPS_ADAPTIVE_H
#include "model/ops/window.h"

struct adaptive { int64_t planes, in[3], out[3]; };      /* missing dimensions come first and have size 1 */
struct window_span { int64_t from, to; };

static inline struct adaptive adaptive_of(const struct graph *g, const struct node *node, int n)
{
    const struct shape *in = &g->tensor[node->in[0]].shape, *out = &g->tensor[node->out].shape;
    struct adaptive a = {.planes = n * in->d[0]};
    space_sizes(in, a.in);
    space_sizes(out, a.out);
    return a;
}

/* The inputs of output o. */
static inline struct window_span adaptive_span(const struct adaptive *a, int dim, int64_t o)
{
    int64_t in = a->in[dim], out = a->out[dim];
    return (struct window_span){o * in / out, ((o + 1) * in + out - 1) / out};
}

static inline int64_t adaptive_in(const struct adaptive *a) { return a->in[0] * a->in[1] * a->in[2]; }
static inline int64_t adaptive_out(const struct adaptive *a) { return a->out[0] * a->out[1] * a->out[2]; }
#endif
