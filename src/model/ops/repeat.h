/* Sizes of a repeat, for the operator and backends: channels and points of an input sample, and the number of
 * copies. */
#ifndef OPS_REPEAT_H
#define OPS_REPEAT_H
#include "model/op.h"
struct repeat { int64_t c, points, count; };
static inline struct repeat repeat_of(const struct graph *g, const struct node *n)
{
    const struct shape *s = &g->tensor[n->in[0]].shape;
    return (struct repeat){s->d[0], shape_count(s) / s->d[0], n->attr[0].i[0]};
}
#endif
