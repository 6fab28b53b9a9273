/* Random samples, for measurements and experiments: standard normal inputs, or integers below the input's range; one
 * random class, or a random normal target vector. Sample i is a function of (seed, part, i) alone: the same on every
 * rank, in every order, and for any number of samples.
 *
 * Normal numbers are slow to make, and a GPU would wait for them in every step. So GPU runs cache as many inputs as fit
 * into KEPT_BYTES. Without data.samples only these exist, on any device, and repeat. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "data/ds_int.h"

/* without data.samples: the length of an epoch; steps never run out */
enum { ENDLESS = 1 << 20, KEPT_BYTES = 1 << 28, KEPT_LEAST = 8 };

struct synthetic {
    struct ds ds;
    struct ds_pair want;
    uint64_t seed, count, apart;                         /* apart: number of different samples */
    uint64_t n_kept;
    /* inputs of the first n_kept samples, NULL: not yet made; kept NULL: no cache */
    _Atomic(void *) *kept;
    uint32_t part;
    bool vector;
    int64_t classes;
};

/* Classes and one-hot vectors are drawn alike; the model's target decides which. Targets of another shape must be
 * requested. */
static int labels_check(const struct conf *c, const struct ds_pair *want, struct err *e)
{
    char s[96];
    bool vector = c->data.labels == LABELS_VECTOR, classes = want->target_type == I64;
    if (!want->has_target) return 0;
    if (ds_pair_has_map(want))
        return !vector ? 0 : conf_error(c, "data.labels", e,
                                        "vectors, but the graph's labels are a map of classes: use map");
    if (!vector && !classes && want->target.n != 1)
        return conf_error(c, "data.labels", e, "a class does not fit a target of shape %s: use vector",
                          shape_text(&want->target, s));
    if (vector && classes)
        return conf_error(c, "data.labels", e, "vectors, but the graph's labels are a class: use class");
    if (vector && c->train.loss == LOSS_CROSS_ENTROPY)
        return conf_error(c, "data.labels", e, "random vectors are not distributions over classes, which "
                                               "cross_entropy needs: use class or onehot, or train.loss = mse");
    return 0;
}

static size_t input_bytes(const struct ds_pair *want)
{
    return (size_t)shape_count(&want->input) * dtype_bytes(want->input_type);
}

/* How many inputs KEPT_BYTES hold, rounded down to a power of two. */
static uint64_t kept_count(const struct ds_pair *want)
{
    uint64_t n = KEPT_LEAST, bytes = input_bytes(want);
    while (n < ENDLESS && 2 * n * bytes <= KEPT_BYTES) n *= 2;
    return n;
}

static int synthetic_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                          struct err *e)
{
    int64_t n = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    bool endless = part == DS_TRAIN && n <= 0;
    if (part == DS_TRAIN && n <= 0) n = ENDLESS;
    *out = NULL;
    if (n <= 0) return 0;
    struct ds_pair pair;
    if (ds_pair_of(c, want, true, &pair, e) || labels_check(c, &pair, e)) return -1;
    if (pair.input_type != F32 && !pair.range)
        return conf_error(c, "data.source", e, "the graph does not show which whole numbers its input takes");
    struct synthetic *s = mem_alloc(sizeof *s);
    *s = (struct synthetic){.ds.kind = &ds_synthetic,
                            .want = pair,
                            .seed = (uint64_t)c->run.seed,
                            .count = (uint64_t)n,
                            .part = (uint32_t)part};
    ds_pair_fields(&s->ds, &pair);
    s->n_kept = kept_count(&pair);
    s->ds.endless = endless;
    s->apart = endless ? s->n_kept : s->count;
    if (s->n_kept > s->count) s->n_kept = s->count;
    s->vector = pair.target_type == F32 && c->data.labels == LABELS_VECTOR;
    s->classes = pair.classes;
    const bool classes = pair.has_target && !s->vector && !ds_pair_has_map(&pair);
    if (classes && ds_classes("data.source = \"synthetic\"", &pair, &s->classes, e)) {
        free(s);
        return -1;
    }
    *out = &s->ds;
    return 0;
}

static struct rng_at sample_at(const struct synthetic *s, enum rng_domain domain, uint64_t index)
{
    return (struct rng_at){s->seed, domain, s->part, (uint32_t)index, (uint32_t)(index >> 32)};
}

static void input_draw(const struct synthetic *s, uint64_t index, void *x)
{
    struct rng_at at = sample_at(s, RNG_SYNTH, index);
    uint32_t w[4];
    int64_t n = shape_count(&s->want.input);
    if (s->want.input_type == F32) {
        rng_fill_normal(at, x, (uint64_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) rng_words(at, (uint32_t)(i / 4), w);
        ds_integer_write(s->want.input_type, x, i, (int64_t)((uint64_t)w[i % 4] * (uint64_t)s->want.range >> 32));
    }
}

static void input_make(struct synthetic *s, uint64_t index, void *x)
{
    size_t bytes = input_bytes(&s->want);
    _Atomic(void *) *kept = s->kept && index < s->n_kept ? &s->kept[index] : NULL;
    const void *made = kept ? atomic_load(kept) : NULL;
    if (made) {
        memcpy(x, made, bytes);
        return;
    }
    input_draw(s, index, x);
    if (!kept) return;
    void *copy = memcpy(mem_alloc(bytes), x, bytes), *none = NULL;
    if (!atomic_compare_exchange_strong(kept, &none, copy)) free(copy);   /* another thread made it, too */
}

static void synthetic_keep(struct ds *d)
{
    struct synthetic *s = (struct synthetic *)d;
    if (!s->kept) s->kept = mem_alloc((size_t)s->n_kept * sizeof *s->kept);
}

static uint64_t synthetic_count(const struct ds *d) { return ((const struct synthetic *)d)->count; }

static void target_make(const struct synthetic *s, uint64_t index, void *y)
{
    struct rng_at at = sample_at(s, RNG_LABEL, index);
    uint32_t w[4];
    if (ds_pair_has_map(&s->want)) {
        for (int64_t i = 0, n = shape_count(&s->want.target); i < n; i++) {
            if (i % 4 == 0) rng_words(at, (uint32_t)(i / 4), w);
            ds_integer_write(s->want.target_type, y, i, (int64_t)((uint64_t)w[i % 4] * (uint64_t)s->classes >> 32));
        }
    } else if (s->vector) {
        rng_fill_normal(at, y, (uint64_t)shape_count(&s->want.target));
    } else {
        rng_words(at, 0, w);
        ds_class_write(&s->want, s->classes, (int64_t)((uint64_t)w[0] * (uint64_t)s->classes >> 32), y);
    }
}

static int synthetic_read(struct ds *d, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    struct synthetic *s = (struct synthetic *)d;
    if (ds_index_check(d, index, e)) return -1;
    if (field == PAIR_INPUT) input_make(s, index % s->apart, out);
    else target_make(s, index % s->apart, out);
    return 0;
}

static void synthetic_close(struct ds *d)
{
    struct synthetic *s = (struct synthetic *)d;
    for (uint64_t i = 0; s->kept && i < s->n_kept; i++) free(atomic_load(&s->kept[i]));
    free(s->kept);
    free(s);
}

const struct ds_kind ds_synthetic = {
    .name = "synthetic",
    .text = "random inputs, for an integer input whole numbers that its operator takes, with random classes or targets",
    .open = synthetic_open, .count = synthetic_count, .read = synthetic_read, .keep = synthetic_keep,
    .close = synthetic_close,
};
