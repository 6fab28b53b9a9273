/* Shared by operators that take or put a part of a tensor along one dimension, and backends that have memory as these
 * have it: of `outer` rows of `width` elements, those from `first` on, `part` of them. */
#ifndef OPS_SLICE_H
#define OPS_SLICE_H
#include "model/op.h"

enum { SLICE_DIM, SLICE_FIRST, SLICE_COUNT };
struct slice { int64_t outer, width, first, part; };
/* Of a slice operator's input and n samples. last: dimensions lie in the order 1, 2, ..., 0: channels last. */
static inline struct slice slice_of(const struct graph *g, const struct node *node, int n, bool last)
{
    const struct shape *s = &g->tensor[node->in[0]].shape;
    const int64_t dim = node->attr[SLICE_DIM].i[0], from = last && dim ? 1 : 0;
    int64_t outer = n, inner = 1;
    for (int64_t i = from; i < dim; i++) outer *= s->d[i];
    if (last && !dim) for (int i = 1; i < s->n; i++) outer *= s->d[i];
    else for (int64_t i = dim + 1; i < s->n; i++) inner *= s->d[i];
    if (last && dim) inner *= s->d[0];
    return (struct slice){outer, s->d[dim] * inner, node->attr[SLICE_FIRST].i[0] * inner,
                          node->attr[SLICE_COUNT].i[0] * inner};
}
#endif
