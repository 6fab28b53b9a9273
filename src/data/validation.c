#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"
#include "data/ds_int.h"
#include "data/validation.h"

/* A data set of some samples of another one. kind: the other's, except for functions with counts and sample numbers. */
struct some {
    struct ds ds;
    struct ds_kind kind;
    struct ds *all;
    uint64_t n, *sample;
};

static const struct some *of(const struct ds *d) { return (const struct some *)d; }

static uint64_t some_count(const struct ds *d) { return of(d)->n; }

static int some_read(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    const struct some *s = of(d);
    if (ds_index_check(d, sample, e)) return -1;
    return s->all->kind->read(s->all, s->sample[sample], visit, field, out, e);
}

static double some_weight(const struct ds *d, uint64_t sample, uint64_t visit)
{
    return of(d)->all->kind->weight(of(d)->all, of(d)->sample[sample], visit);
}

static void some_keep(struct ds *d) { of(d)->all->kind->keep(of(d)->all); }

static void some_name_of(const struct ds *d, uint64_t sample, struct text *t)
{
    of(d)->all->kind->name_of(of(d)->all, of(d)->sample[sample], t);
}

static void some_damage(const struct ds *d, uint64_t sample, int field, struct ds_damage *sum)
{
    of(d)->all->kind->damage(of(d)->all, of(d)->sample[sample], field, sum);
}

static void some_report(const struct ds *d, const struct ds_sink *to)
{
    of(d)->all->kind->tell(of(d)->all, to);
    to->put(to->ctx, of(d)->sample, of(d)->n * sizeof *of(d)->sample);
}

static size_t some_held(const struct ds *d) { return of(d)->all->kind->held(of(d)->all); }

static void some_close(struct ds *d)
{
    struct some *s = (struct some *)d;
    ds_close(s->all);
    free(s->sample);
    free(s);
}

/* Leaves out functions that the other kind does not have. */
static struct ds_kind kind_of(const struct ds_kind *all)
{
    struct ds_kind k = *all;
    k.count = some_count;
    k.read = some_read;
    k.close = some_close;
    if (k.weight) k.weight = some_weight;
    if (k.keep) k.keep = some_keep;
    if (k.name_of) k.name_of = some_name_of;
    if (k.damage) k.damage = some_damage;
    if (k.tell) k.tell = some_report;
    if (k.held) k.held = some_held;
    return k;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

struct class_member { int64_t class; uint64_t sample; };

static int member_order(const void *a, const void *b)
{
    const struct class_member *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

/* Draws k of n samples: takes each with probability (samples still to draw) / (samples left). */
static void validation_draw(const struct class_member *m, uint64_t n, uint64_t k, uint64_t seed, bool *kept)
{
    for (uint64_t i = 0; i < n && k; i++) {
        uint32_t w[4];
        const uint64_t at = m[i].sample;
        rng_words((struct rng_at){seed, RNG_VALIDATION, 0, (uint32_t)(at >> 32), (uint32_t)at}, 0, w);
        kept[at] = ((uint64_t)w[0] << 32 | w[1]) % (n - i) < k;
        k -= kept[at];
    }
}

/* Later classes compensate for the rounding of earlier ones, so the fraction of all samples is right, too. */
void validation_choose(const int64_t *class, uint64_t n, double share, uint64_t seed, bool *kept)
{
    struct class_member *m = mem_alloc(size_mul(n + 1, sizeof *m));
    uint64_t taken = 0;
    for (uint64_t i = 0; i < n; i++) m[i] = (struct class_member){class[i], i};
    qsort(m, (size_t)n, sizeof *m, member_order);
    memset(kept, 0, (size_t)n * sizeof *kept);
    for (uint64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && m[end].class == m[first].class; end++) continue;
        const uint64_t until = (uint64_t)(share * (double)end + 0.5), all = end - first;
        const uint64_t up = (uint64_t)ceil(share * (double)all), most = up < all ? up : all - 1;
        uint64_t k = until > taken ? until - taken : 0;
        if (k > most) k = most;
        validation_draw(m + first, end - first, k, seed, kept);
        taken += k;
    }
    free(m);
}

/* The sample numbers of the part; *n: how many. */
static uint64_t *samples_of(const struct ds *all, const struct conf *c, enum ds_part part, uint64_t *n)
{
    const uint64_t count = all->kind->count(all);
    int64_t *class = mem_alloc(size_mul(count + 1, sizeof *class));
    bool *kept = mem_alloc(count + 1);
    uint64_t *sample = mem_alloc(size_mul(count + 1, sizeof *sample));
    for (uint64_t i = 0; i < count && all->kind->class_of; i++) class[i] = all->kind->class_of(all, i);
    validation_choose(class, count, c->data.validation, (uint64_t)c->run.seed, kept);
    *n = 0;
    for (uint64_t i = 0; i < count; i++)
        if (kept[i] == (part == DS_TEST)) sample[(*n)++] = i;
    free(class);
    free(kept);
    return sample;
}

int validation_open(const struct ds_kind *kind, const struct conf *c, enum ds_part part, const struct ds_want *want,
                    struct ds **out, struct err *e)
{
    struct conf same = *c;                                /* test samples are not augmented */
    struct ds *all = NULL;
    if (part == DS_TEST) same.data.augment.n = 0;
    *out = NULL;
    if (kind->open(&same, DS_TRAIN, want, &all, e)) return -1;
    if (!all) return 0;
    struct some *s = mem_alloc(sizeof *s);
    *s = (struct some){.ds = *all, .kind = kind_of(kind), .all = all};
    s->ds.kind = &s->kind;
    s->sample = samples_of(all, c, part, &s->n);
    if (!s->n || s->n == kind->count(all)) {
        const uint64_t count = kind->count(all);
        some_close(&s->ds);
        return conf_error(c, "data.validation", e, "holds out none of %llu samples for tests: too small for so few "
                                                   "samples, or so few of each class", (unsigned long long)count);
    }
    if (kind->only) kind->only(all, s->sample, s->n);
    if (part == DS_TEST) ds_label_bytes(&s->ds, all, s->sample, s->n);
    *out = &s->ds;
    return 0;
}
