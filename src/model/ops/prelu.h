/* Sizes of a prelu, for the operator and backends: channels and points of a sample, and whether all share one slope. */
#ifndef OPS_PRELU_H
#define OPS_PRELU_H
#include "model/op.h"
struct prelu { int64_t c, points; bool shared; };
static inline struct prelu prelu_of(const struct graph *g, const struct node *n)
{
    const struct shape *s = &g->tensor[n->out].shape;
    return (struct prelu){s->d[0], shape_count(s) / s->d[0], n->attr[1].i[0] != 0};
}
#endif
