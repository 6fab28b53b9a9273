/* What elements, or channels, are multiplied with, for the dropout operator and backends. */
#ifndef OPS_DROPOUT_H
#define OPS_DROPOUT_H
#include "base/rng.h"
#include "model/op.h"

static inline bool dropout_channels(const struct node *n) { return n->attr[1].i[0] != 0; }

struct dropout { struct rng_at at; uint32_t limit; float keep; };
static inline struct dropout dropout_of(const struct graph *g, const struct node *n, const struct be_block *b)
{
    const double p = n->attr[0].r;
    return (struct dropout){{b->seed, RNG_DROPOUT, (uint32_t)(n - g->node), (uint32_t)b->step},
                            (uint32_t)(p * 0x1p32), (float)(1 / (1 - p))};
}
/* Of four neighbours, those from 4 * place on. */
static inline void dropout_factors(const struct dropout *d, int64_t sample, uint32_t place, float keep[4])
{
    struct rng_at at = d->at;
    uint32_t w[4];
    at.c = (uint32_t)sample;
    rng_words(at, place, w);
    for (int k = 0; k < 4; k++) keep[k] = w[k] < d->limit ? 0 : d->keep;
}
#endif
