/* The samples of a batch, and the threads that prefetch them. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/rng.h"
#include "data/ds.h"

/* ---- order ------------------------------------------------------------------------------------------------------- */

enum { MOST_EPOCHS = 1 << 20 };                          /* that feed_epochs counts one by one */

struct feed_place feed_place(const struct feed_order *o, uint64_t position)
{
    struct feed_place p = {0, position, o->count};
    if (!o->count) return (struct feed_place){0};
    if (!o->of) return (struct feed_place){position / o->count, position % o->count, o->count};
    for (; p.within >= (p.count = ds_samples(o->of, p.epoch)); p.epoch++) p.within -= p.count;
    return p;
}

static struct feed_place place_next(const struct feed_order *o, struct feed_place p)
{
    if (++p.within < p.count) return p;
    return (struct feed_place){p.epoch + 1, 0, o->of ? ds_samples(o->of, p.epoch + 1) : o->count};
}

int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch)
{
    *epoch = 0;
    if (!o->count) return 0;
    struct feed_place p = feed_place(o, position);
    uint64_t left = p.count - p.within;
    int n = o->end != FEED_FILL && left < (uint64_t)batch ? (int)left : batch;
    *epoch = p.epoch;
    for (int i = 0; i < n; i++, p = place_next(o, p))
        id[i] = (int64_t)(o->shuffle ? rng_permute(o->seed, (uint32_t)p.epoch, p.within, p.count) : p.within);
    return n;
}

uint64_t feed_next(const struct feed_order *o, uint64_t position, int batch)
{
    const struct feed_place p = feed_place(o, position);
    const uint64_t left = p.count - p.within;
    return o->end == FEED_DROP && left < (uint64_t)batch ? position + left : position;
}

/* Samples of `epochs` epochs, each rounded down to whole batches (DROP), up (SHORT), or not (FILL). */
static uint64_t samples_of(const struct feed_order *o, uint64_t batch, uint64_t epochs)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < (o->of ? epochs : 1); i++) {
        const uint64_t n = o->of ? ds_samples(o->of, i) : o->count, rest = n % batch;
        sum += o->end == FEED_FILL || !rest ? n : o->end == FEED_DROP ? n - rest : n - rest + batch;
    }
    return o->of ? sum : sum * epochs;
}

uint64_t feed_batches(const struct feed_order *o, int batch, uint64_t epochs)
{
    return (samples_of(o, (uint64_t)batch, epochs) + (uint64_t)batch - 1) / (uint64_t)batch;
}

uint64_t feed_epochs(const struct feed_order *o, int batch, uint64_t batches)
{
    uint64_t epochs = 0, n = 0;
    if (!o->count || !batches) return 0;
    if (o->of) {
        while (n < batches && epochs < MOST_EPOCHS) n = feed_batches(o, batch, ++epochs);
        return epochs;
    }
    if (o->end == FEED_FILL) return (batches * (uint64_t)batch + o->count - 1) / o->count;
    n = feed_batches(o, batch, 1);
    return n ? (batches + n - 1) / n : 0;
}

uint64_t feed_taken(const struct feed_order *o, uint64_t position, int batch)
{
    const uint64_t epochs = feed_place(o, position).epoch;
    if (o->end != FEED_DROP) return position;
    if (!o->of) return position - epochs * (o->count % (uint64_t)batch);
    for (uint64_t i = 0; i < epochs; i++) position -= ds_samples(o->of, i) % (uint64_t)batch;
    return position;
}

/* ---- prefetch: a ring of buffers -------------------------------------------------------------------------------- */

/* A request. Readers get its samples in order: `next` is the next one, `busy` are being read. failed: the first sample
 * that could not be read, with error e. No later sample is handed out, so the error does not depend on which reader is
 * first. */
struct feed_item {
    void *value[MAX_INPUTS];
    int64_t *id;
    uint64_t position;
    int n, next, busy, failed;
    struct err e;
};
struct feed {
    struct feed_want want;
    size_t bytes[MAX_INPUTS];                            /* per wanted field of a sample */
    struct feed_order order;                             /* for the epoch of a position */
    /* item[first]: the oldest that is not given back. Counts from there on: taken (0 or 1), filled: read, n:
     * requested */
    int ring, first, taken, filled, n;
    bool stop;
    struct feed_item *item;
    struct ds_damage damage;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t *thread;
    int n_threads;
};

static struct feed_item *item_at(struct feed *f, int i) { return &f->item[(f->first + i) % f->ring]; }

/* ---- readers: with the lock held, except while reading ---- */

/* The oldest request with samples to hand out; NULL: none. */
static struct feed_item *item_next(struct feed *f)
{
    for (int i = f->filled; i < f->n; i++)
        if (item_at(f, i)->next < item_at(f, i)->n) return item_at(f, i);
    return NULL;
}

static int sample_read(struct feed *f, const struct feed_item *it, int i, struct err *e)
{
    struct ds *d = f->want.ds;
    uint64_t visit = feed_place(&f->order, it->position + (uint64_t)i).epoch;
    for (int k = 0; k < f->want.n_fields; k++) {
        void *out = (char *)it->value[k] + (size_t)i * f->bytes[k];
        struct ds_at at = {(uint64_t)it->id[i], visit, f->want.field[k]};
        if (ds_read(d, &at, out, e)) return -1;
    }
    return 0;
}

static bool item_over(const struct feed_item *it) { return it->next == it->n && !it->busy; }

static void filled_count(struct feed *f)
{
    while (f->filled < f->n && item_over(item_at(f, f->filled))) f->filled++;
}

static void item_work(struct feed *f, struct feed_item *it)
{
    struct err e = {0};
    int i = it->next++;
    it->busy++;
    pthread_mutex_unlock(&f->lock);
    int bad = sample_read(f, it, i, &e);
    pthread_mutex_lock(&f->lock);
    it->busy--;
    if (bad && i < it->failed) {
        it->failed = i;
        it->e = e;
        it->next = it->n;
    }
    if (!item_over(it)) return;
    filled_count(f);
    pthread_cond_broadcast(&f->changed);
}

static void *feed_main(void *arg)
{
    struct feed *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        struct feed_item *it = item_next(f);
        if (it) item_work(f, it);
        else pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- opening ---- */

static void feed_free(struct feed *f)
{
    for (int i = 0; i < f->ring; i++) {
        for (int k = 0; k < f->want.n_fields; k++) free(f->item[i].value[k]);
        free(f->item[i].id);
    }
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f->thread);
    free(f->damage.counted);
    free(f->item);
    free(f);
}

/* If readers may not run on their processors, they run on this thread's. */
static int reader_start(struct feed *f, pthread_t *t)
{
    const struct feed_want *w = &f->want;
    pthread_attr_t where;
    int bad = -1;
    if (w->cores && CPU_COUNT(w->cores)) {
        pthread_attr_init(&where);
        pthread_attr_setaffinity_np(&where, sizeof *w->cores, w->cores);
        bad = pthread_create(t, &where, feed_main, f);
        pthread_attr_destroy(&where);
    }
    return bad ? pthread_create(t, NULL, feed_main, f) : 0;
}

/* Starts the readers with signals blocked, because the main thread handles signals. */
static int readers_start(struct feed *f, struct err *e)
{
    sigset_t all, old;
    int bad = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (f->n_threads < f->want.readers && !bad)
        if (!(bad = reader_start(f, &f->thread[f->n_threads]))) f->n_threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!bad) return 0;
    return err_set(e, E_OS, "cannot create thread %d of %d that read samples (ulimit -u, ulimit -v)", f->n_threads + 1,
                   f->want.readers);
}

static size_t field_bytes(const struct field *f) { return (size_t)shape_count(&f->shape) * dtype_bytes(f->type); }

size_t feed_bytes(const struct feed_want *w)
{
    size_t sample = sizeof(int64_t);
    for (int k = 0; k < w->n_fields; k++) sample += field_bytes(&w->ds->field[w->field[k]]);
    return (size_t)w->depth * (size_t)w->max_samples * sample;
}

int feed_open(const struct feed_want *w, struct feed **out, struct err *e)
{
    struct feed *f = mem_alloc(sizeof *f);
    *f = (struct feed){.want = *w, .ring = w->depth,
                       .order = {.count = w->ds->kind->count(w->ds), .of = ds_epochs_of(w->ds)}};
    for (int k = 0; k < w->n_fields; k++) f->bytes[k] = field_bytes(&w->ds->field[w->field[k]]);
    f->item = mem_alloc((size_t)f->ring * sizeof *f->item);
    for (int i = 0; i < f->ring; i++) {
        for (int k = 0; k < w->n_fields; k++)
            f->item[i].value[k] = mem_alloc(size_mul(f->bytes[k], (size_t)w->max_samples));
        f->item[i].id = mem_alloc((size_t)w->max_samples * sizeof(int64_t));
    }
    f->thread = mem_alloc((size_t)(w->readers + 1) * sizeof *f->thread);
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    *out = f;
    if (!readers_start(f, e)) return 0;
    *out = NULL;
    feed_close(f);
    return -1;
}

/* ---- requests ---- */

static int request_add(struct feed *f, int n, const int64_t *id, uint64_t position, struct err *e)
{
    if (n > f->want.max_samples)
        return err_set(e, E_INTERNAL, "%d samples are requested at once, the feed holds %d", n, f->want.max_samples);
    if (f->n == f->ring)
        return err_set(e, E_INTERNAL, "more samples are requested than the feed holds");
    struct feed_item *it = item_at(f, f->n);
    it->n = it->failed = n;
    it->next = it->busy = 0;
    it->e.code = 0;
    it->position = position;
    memcpy(it->id, id, (size_t)n * sizeof *id);
    f->n++;
    filled_count(f);
    pthread_cond_broadcast(&f->changed);
    return 0;
}

int feed_request(struct feed *f, int n, const int64_t *id, uint64_t position, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    int bad = request_add(f, n, id, position, e);
    pthread_mutex_unlock(&f->lock);
    return bad;
}

/* With the lock held; releases it meanwhile. */
static int meanwhile_run(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    if (!m) return 0;
    pthread_mutex_unlock(&f->lock);
    int bad = m->run(m->ctx, e);
    pthread_mutex_lock(&f->lock);
    return bad;
}

/* Waits for the oldest request: storage may stall. Without readers, this thread reads it, sample by sample. */
static int oldest_wait(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    enum { LOOK_NS = 2000000 };
    while (f->n > f->taken && f->filled == f->taken) {
        if (meanwhile_run(f, m, e)) return -1;
        if (f->filled > f->taken) return 0;
        if (f->want.readers) clock_cond_wait(&f->changed, &f->lock, LOOK_NS);
        else item_work(f, item_at(f, f->filled));
    }
    return 0;
}

static void oldest_give(struct feed *f)
{
    f->first = (f->first + 1) % f->ring;
    f->taken--;
    f->filled--;
    f->n--;
}

/* Damage counts when the request is taken, so in sample order, whichever thread read it. */
static void damage_take(struct feed *f, const struct feed_item *it)
{
    for (int i = 0; i < it->n; i++)
        for (int k = 0; k < f->want.n_fields; k++) {
            struct ds_at at = {(uint64_t)it->id[i], feed_place(&f->order, it->position + (uint64_t)i).epoch,
                               f->want.field[k]};
            ds_damage(f->want.ds, &at, &f->damage);
        }
}

static int oldest_take(struct feed *f, const struct feed_meanwhile *m, void *const **value, struct err *e)
{
    if (f->taken) return err_set(e, E_INTERNAL, "samples are taken before others are given back");
    if (oldest_wait(f, m, e)) return -1;
    if (!f->n) return err_set(e, E_INTERNAL, "samples are taken that nobody requested");
    struct feed_item *it = item_at(f, f->taken++);
    *value = it->value;
    if (it->failed == it->n) {
        damage_take(f, it);
        return 0;
    }
    err_set(e, it->e.code, "%s", it->e.text);
    oldest_give(f);
    return -1;
}

int feed_take(struct feed *f, const struct feed_meanwhile *meanwhile, void *const **value, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    int bad = oldest_take(f, meanwhile, value, e);
    pthread_mutex_unlock(&f->lock);
    return bad;
}

void feed_give(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->taken) oldest_give(f);
    pthread_mutex_unlock(&f->lock);
}

/* Samples not yet handed out never will be. */
int feed_drop(struct feed *f, const struct feed_meanwhile *meanwhile, struct err *e)
{
    int bad = 0;
    pthread_mutex_lock(&f->lock);
    for (int i = f->filled; i < f->n; i++) item_at(f, i)->next = item_at(f, i)->n;
    filled_count(f);
    while (f->n && !(bad = oldest_wait(f, meanwhile, e))) {
        f->taken = 1;
        oldest_give(f);
    }
    pthread_mutex_unlock(&f->lock);
    return bad;
}

bool feed_ready(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    const struct feed_item *it = item_at(f, f->taken);
    bool ready = f->filled > f->taken && it->failed == it->n;
    pthread_mutex_unlock(&f->lock);
    return ready;
}

const struct ds_damage *feed_damage(const struct feed *f) { return &f->damage; }

void feed_close(struct feed *f)
{
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_threads; i++) pthread_join(f->thread[i], NULL);
    feed_free(f);
}
