/* Factors of elements, channels or samples, for dropout, stochastic_depth and backends. */
#ifndef OPS_DROPOUT_H
#define OPS_DROPOUT_H
#include <string.h>
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
/* The factors of four neighbours, from 4 * place on. */
static inline void dropout_factors(const struct dropout *d, int64_t sample, uint32_t place, float keep[4])
{
    struct rng_at at = d->at;
    uint32_t w[4];
    at.c = (uint32_t)sample;
    rng_words(at, place, w);
    for (int k = 0; k < 4; k++) keep[k] = w[k] < d->limit ? 0 : d->keep;
}
static inline float depth_factor(const struct dropout *d, int64_t sample)
{
    float keep[4];
    dropout_factors(d, sample, 0, keep);
    return keep[0];
}

/* Reference for both: computes y from x with `count` draws per sample, each for all / count neighbouring elements. */
static inline void dropout_apply(const struct op_call *c, int64_t count, const float *x, float *y)
{
    const int64_t all = shape_count(&c->g->tensor[c->node->out].shape);
    const struct dropout d = dropout_of(c->g, c->node, c->block);
    if (!c->train) { memcpy(y, x, (size_t)(c->n * all) * sizeof *y); return; }
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < count; i += 4) {
            float keep[4];
            dropout_factors(&d, c->sample[n], (uint32_t)(i / 4), keep);
            for (int64_t k = 0; k < 4 && i + k < count; k++)
                for (int64_t p = 0; p < all / count; p++, x++) *y++ = keep[k] == 0 ? 0 : *x * keep[k];
        }
}
#endif
