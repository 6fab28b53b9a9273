/* For operators that read or write a part of a tensor along one dimension, and for backends with their memory layout:
 * `outer` rows of `width` elements, of which `part` elements from `first` on. */
#ifndef OPS_SLICE_H
#define OPS_SLICE_H
#include "model/op.h"

enum { SLICE_DIM, SLICE_FIRST, SLICE_COUNT };
struct slice { int64_t outer, width, first, part; };
/* `count` of dimension `dim` from `first` on, for n samples of a shape. last: the dimensions have the order 1, 2, ...,
 * 0: channels last. */
static inline struct slice slice_at(const struct shape *s, int64_t dim, int64_t first, int64_t count, int n, bool last)
{
    const int64_t from = last && dim ? 1 : 0;
    int64_t outer = n, inner = 1;
    for (int64_t i = from; i < dim; i++) outer *= s->d[i];
    if (last && !dim) for (int i = 1; i < s->n; i++) outer *= s->d[i];
    else for (int64_t i = dim + 1; i < s->n; i++) inner *= s->d[i];
    if (last && dim) inner *= s->d[0];
    return (struct slice){outer, s->d[dim] * inner, first * inner, count * inner};
}
static inline struct slice slice_of(const struct graph *g, const struct node *node, int n, bool last)
{
    return slice_at(&g->tensor[node->in[0]].shape, node->attr[SLICE_DIM].i[0], node->attr[SLICE_FIRST].i[0],
                    node->attr[SLICE_COUNT].i[0], n, last);
}

/* The i-th output of a split operator as a part of its input. */
enum { SPLIT_SIZES, SPLIT_DIM };
static inline struct slice split_of(const struct graph *g, const struct node *node, int i, int n, bool last)
{
    const int64_t *size = node->attr[SPLIT_SIZES].i;
    int64_t first = 0;
    for (int k = 0; k < i; k++) first += size[k];
    return slice_at(&g->tensor[node->in[0]].shape, node->attr[SPLIT_DIM].i[0], first, size[i], n, last);
}
#endif
