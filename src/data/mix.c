#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "data/augment_int.h"
#include "data/ds_int.h"
#include "data/mix.h"

struct mix {
    struct augment all;
    int n, entry[CONF_LIST];                             /* entries of the list that mix */
    double upto[CONF_LIST];                              /* sum of the probabilities up to and including this entry */
    uint64_t count;
    size_t values[MAX_INPUTS];                           /* number of floats of a field */
    pthread_mutex_t lock;
    struct mix_spare { struct mix_spare *next; float x[]; } *spare; /* for the other sample's values */
};

static int fields_check(const struct mix *m, const struct ds *d, struct err *e)
{
    const char *name = m->all.entry[m->entry[0]].kind->name;
    for (int i = 0; i < d->n_fields; i++) {
        const struct field *f = &d->field[i];
        if (f->type == F32) continue;
        if (f->role == ROLE_SAMPLE) return err_set(e, E_CONF, "%s mixes floats, the model takes %s", name,
                                                   dtype_name(f->type));
        return err_set(e, E_CONF, "%s mixes labels, so they must be vectors: set data.labels = onehot", name);
    }
    return 0;
}

static void chances(struct mix *m)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++) m->upto[i] = sum += m->all.entry[m->entry[i]].of[MIX_P].v[0];
    for (int i = 0; i < m->n && sum > 1; i++) m->upto[i] /= sum;
}

int mix_open(const struct conf *c, enum ds_part part, const struct ds *d, struct mix **out, struct err *e)
{
    struct mix *m = mem_alloc(sizeof *m);
    struct err own = {0};
    *out = NULL;
    int bad = augment_read(c, &m->all, e);
    for (int i = 0; i < m->all.n && !bad; i++)
        if (m->all.entry[i].kind->stage == AUG_MIX) m->entry[m->n++] = i;
    if (!bad && m->n && part == DS_TRAIN && fields_check(m, d, &own))
        bad = conf_error(c, "data.augment", e, "%s", own.text);
    if (bad || !m->n || part != DS_TRAIN) {
        free(m);
        return bad;
    }
    chances(m);
    m->count = d->kind->count(d);
    for (int i = 0; i < d->n_fields; i++) m->values[i] = (size_t)shape_count(&d->field[i].shape);
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return 0;
}

void mix_free(struct mix *m)
{
    if (!m) return;
    while (m->spare) {
        struct mix_spare *s = m->spare;
        m->spare = s->next;
        free(s);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Large enough for any field: targets may have fewer or more values than inputs. */
static struct mix_spare *spare_take(struct mix *m)
{
    size_t most = 0;
    for (int i = 0; i < MAX_INPUTS; i++) if (m->values[i] > most) most = m->values[i];
    pthread_mutex_lock(&m->lock);
    struct mix_spare *s = m->spare;
    if (s) m->spare = s->next;
    pthread_mutex_unlock(&m->lock);
    return s ? s : mem_alloc(sizeof *s + size_mul(most, sizeof(float)));
}

static void spare_give(struct mix *m, struct mix_spare *s)
{
    pthread_mutex_lock(&m->lock);
    s->next = m->spare;
    m->spare = s;
    pthread_mutex_unlock(&m->lock);
}

/* The entry that mixes this sample; NULL: none. *other: the other sample. r: continues with the entry's numbers. */
static const struct aug *entry_of(const struct mix *m, struct augment_key k, uint64_t *other, struct draws *r)
{
    enum { CHOICE = 255 };                               /* not a place in a list */
    struct draws choice = aug_draws(&m->all, CHOICE, k);
    double u = variate_uniform(&choice);
    int i = 0;
    *other = variate_below(&choice, m->count);
    while (i < m->n && u >= m->upto[i]) i++;
    if (i == m->n) return NULL;
    *r = aug_draws(&m->all, m->entry[i], k);
    return &m->all.entry[m->entry[i]];
}

bool mix_other(const struct mix *m, const struct ds_at *at, uint64_t *other)
{
    struct draws r;
    return entry_of(m, (struct augment_key){at->sample, at->visit}, other, &r) != NULL;
}

/* Values that are not a picture become a row. */
static struct canvas canvas_of(const struct ds *d, size_t values, float *x)
{
    const int64_t *size = d->picture.d;
    struct canvas c = {.planes = 1, .height = 1, .width = (int)values, .at = (uint32_t *)x};
    if (!d->picture.n) return c;
    c.planes = (int)size[0];
    c.height = (int)size[1];
    c.width = (int)size[2];
    return c;
}

static void blend(double keep, const float *other, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(keep * x[i] + (1 - keep) * other[i]);
}

int mix_read(struct mix *m, struct ds *d, const struct ds_at *at, void *out, struct err *e)
{
    const struct augment_key k = {at->sample, at->visit};
    double v[AUG_DRAWN] = {0};
    uint64_t other;
    struct draws r;
    if (d->kind->read(d, at->sample, at->visit, at->field, out, e)) return -1;
    const struct aug *a = entry_of(m, k, &other, &r);
    if (!a) return 0;
    struct canvas c = canvas_of(d, m->values[at->field], out);
    a->kind->draw(a, &r, c.height, c.width, v);
    struct mix_spare *s = spare_take(m);
    int bad = d->kind->read(d, other, at->visit, at->field, s->x, e);
    if (!bad && d->field[at->field].role == ROLE_SAMPLE) a->kind->mix(v, &c, s->x);
    else if (!bad) blend(v[0], s->x, m->values[at->field], out);
    spare_give(m, s);
    return bad;
}
