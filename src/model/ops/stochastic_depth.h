/* What a sample is multiplied with, for the stochastic_depth operator and backends. */
#ifndef OPS_STOCHASTIC_DEPTH_H
#define OPS_STOCHASTIC_DEPTH_H
#include "base/rng.h"
#include "model/op.h"

struct depth { struct rng_at at; uint32_t limit; float keep; };
static inline struct depth depth_of(const struct graph *g, const struct node *n, const struct be_block *b)
{
    double p = n->attr[0].r;
    return (struct depth){{b->seed, RNG_DROPOUT, (uint32_t)(n - g->node), (uint32_t)b->step},
                          (uint32_t)(p * 0x1p32), (float)(1 / (1 - p))};
}
static inline float depth_factor(const struct depth *d, int64_t sample)
{
    struct rng_at at = d->at;
    uint32_t w[4];
    at.c = (uint32_t)sample;
    rng_words(at, 0, w);
    return w[0] < d->limit ? 0 : d->keep;
}
#endif
