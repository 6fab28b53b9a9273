/* synthetic: the tutorial's random data. Inputs are standard normal, targets a random class (as a number or one-hot) or a standard normal vector; sample i is a
 * function of (seed, part, i) alone. */
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "data/ds.h"

struct synthetic { struct ds base; uint64_t seed, count, x_n, y_n; uint32_t part; bool is_class, vector; int64_t classes; };

static int synthetic_open(const struct conf *c, enum ds_part part, const struct shape *input, const struct shape *target, enum dtype type, struct ds **out, struct err *e)
{
    extern const struct ds_kind ds_synthetic;
    uint64_t endless = (uint64_t)1 << 20, asked = (uint64_t)(part == DS_TRAIN ? c->data.samples : c->data.test_samples);
    if (part == DS_TEST && !asked) return 0;
    uint64_t steps = (uint64_t)c->train.steps * (uint64_t)c->train.batch_size;
    struct synthetic *s = mem_alloc(sizeof *s);
    *s = (struct synthetic){.base = {&ds_synthetic}, .seed = (uint64_t)c->run.seed, .count = asked ? asked : steps ? steps : endless, .x_n = (uint64_t)shape_count(input),
                            .y_n = (uint64_t)shape_count(target), .part = (uint32_t)part, .is_class = type == I64, .vector = c->data.labels && !strcmp(c->data.labels, "vector")};
    s->classes = type == I64 ? (c->model.classes ? c->model.classes : 1000) : (int64_t)s->y_n;
    *out = &s->base;
    return 0;
}

static uint64_t synthetic_count(const struct ds *d) { return ((const struct synthetic *)d)->count; }

static int synthetic_read(struct ds *d, uint64_t i, float *x, void *y, struct err *e)
{
    struct synthetic *s = (struct synthetic *)d;
    uint32_t w[4];
    if (x) rng_fill_normal(s->seed, RNG_SYNTH, s->part, (uint32_t)i, (uint32_t)(i >> 32), x, s->x_n);
    if (!y) return 0;
    if (s->vector && !s->is_class) { rng_fill_normal(s->seed, RNG_LABEL, s->part, (uint32_t)i, (uint32_t)(i >> 32), y, s->y_n); return 0; }
    rng_words(s->seed, RNG_LABEL, s->part, (uint32_t)i, (uint32_t)(i >> 32), 0, w);
    int64_t cls = (int64_t)((uint64_t)w[0] * (uint64_t)s->classes >> 32);
    if (s->is_class) { *(int64_t *)y = cls; return 0; }
    memset(y, 0, s->y_n * sizeof(float));
    ((float *)y)[cls] = 1;
    return 0;
}

static void synthetic_close(struct ds *d) { free(d); }

const struct ds_kind ds_synthetic = {"synthetic", "random samples", synthetic_open, synthetic_count, synthetic_read, synthetic_close};
