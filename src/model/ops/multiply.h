/* For the multiply operator and backends: the range of each element of the second factor. */
#ifndef OPS_MULTIPLY_H
#define OPS_MULTIPLY_H
#include "model/op.h"

/* Per sample, each of the `factors` elements of the second tensor multiplies `points` neighbours of the first. */
struct factors { int64_t n, factors, points; };
static inline struct factors factors_of(const struct graph *g, const struct node *node, int n)
{
    int64_t all = shape_count(&g->tensor[node->in[0]].shape), each = shape_count(&g->tensor[node->in[1]].shape);
    return (struct factors){n, each, all / each};
}
#endif
