/* For the RMS norm operator and backends. op_call.saved of a micro-batch has floats [sample][head][point]: the factor
 * 1 / sqrt(mean of x^2 + eps). Kernels of every backend write this layout. */
#ifndef OPS_RMS_NORM_H
#define OPS_RMS_NORM_H
#include "model/op.h"

/* n samples of heads x width channels at `points` points; each head is normalised by itself. */
struct rms_norm { int64_t n, heads, width, points; double eps; };
static inline struct rms_norm rms_norm_of(const struct graph *g, const struct node *node, int n)
{
    const struct extent d = extent_of(g, node->out, n);
    const int64_t heads = node->attr[1].i[0];
    return (struct rms_norm){n, heads, d.c / heads, d.points, node->attr[0].r};
}
#endif
