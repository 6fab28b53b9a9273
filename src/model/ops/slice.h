/* For operators that read or write a part of a tensor along one dimension, and for backends with their memory layout:
 * `outer` rows of `width` elements, of which `part` elements from `first` on. */
#ifndef OPS_SLICE_H
#define OPS_SLICE_H
#include "model/op.h"

enum { SLICE_DIM, SLICE_FIRST, SLICE_COUNT };
struct slice { int64_t outer, width, first, part; };
/* For a slice operator's input and n samples. last: the dimensions have the order 1, 2, ..., 0: channels last. */
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
