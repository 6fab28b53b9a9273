/* Weights for positions instead of channels: for the first `count` points, each with `c` channels. In files and in
 * memory they are 1 x points x channels, as in torch with channels last; a sample of the output is [c][points]. */
#ifndef OPS_LEARNED_H
#define OPS_LEARNED_H
#include "model/op.h"

struct learned { int64_t n, c, count, points; };
static inline struct learned learned_of(const struct graph *g, const struct node *node, int n)
{
    const struct shape *s = &g->tensor[node->out].shape;
    const int64_t c = s->d[0], count = shape_count(&g->param[node->param[0]].shape) / c;
    return (struct learned){n, c, count, shape_count(s) / c};
}

/* The gradient of a weight: the sum over samples of the output's gradient, in double. */
static inline void learned_sum(const struct op_call *call)
{
    const struct learned d = learned_of(call->g, call->node, call->n);
    for (int64_t p = 0; p < d.count; p++)
        for (int64_t c = 0; c < d.c; c++) {
            double sum = 0;
            for (int64_t n = 0; n < d.n; n++) sum += ((const float *)call->gout)[(n * d.c + c) * d.points + p];
            ((float *)call->pgrad[0])[p * d.c + c] = (float)sum;
        }
}
#endif
