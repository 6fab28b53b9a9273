/* For the attention operator and backends. op_call.saved of a micro-batch has floats [sample][head][position][2]: the
 * largest score m over all attended positions, and 1 / the sum of e^(score - m). They are separate, because a float
 * with m + log sum would have no digits left for the logarithm of large scores. Kernels of every backend write this
 * layout. */
#ifndef OPS_ATTENTION_H
#define OPS_ATTENTION_H
#include <math.h>
#include "model/op.h"

/* n samples; points: positions; heads; width: channels per head; scale: factor of scores. */
struct attention { int64_t n, points, heads, width; double scale; };
static inline struct attention attention_of(const struct graph *g, const struct node *node, int n)
{
    const struct shape *s = &g->tensor[node->out].shape;
    int64_t heads = node->attr[0].i[0], width = s->d[0] / heads;
    return (struct attention){n, shape_count(s) / s->d[0], heads, width, 1 / sqrt((double)width)};
}
#endif
