/* Which samples a batch has, and a thread that reads them ahead. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/rng.h"
#include "data/ds.h"

/* ---- order ------------------------------------------------------------------------------------------------------- */

uint64_t feed_visit(uint64_t count, uint64_t position) { return count ? position / count : 0; }

int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch)
{
    *epoch = 0;
    if (!o->count) return 0;
    uint64_t left = o->count - position % o->count;
    int n = (o->shuffle || !o->wrap) && left < (uint64_t)batch ? (int)left : batch;
    *epoch = feed_visit(o->count, position);
    for (int i = 0; i < n; i++) {
        uint64_t at = position + (uint64_t)i, within = at % o->count;
        id[i] = (int64_t)(o->shuffle ? rng_permute(o->seed, (uint32_t)feed_visit(o->count, at), within, o->count)
                                     : within);
    }
    return n;
}

/* ---- prefetch: a ring of buffers -------------------------------------------------------------------------------- */

struct item { void *value[MAX_INPUTS]; int64_t *id; uint64_t position; int n; struct err e; };
struct feed {
    struct feed_want want;
    size_t bytes[MAX_INPUTS];                            /* of each wanted field of a sample */
    uint64_t count;
    /* item[first]: the oldest that is not given back; of those from there on so many are taken (0 or 1), read,
     * requested */
    int ring, first, taken, filled, n;
    bool stop;
    struct item *item;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
};

static struct item *item_at(struct feed *f, int i) { return &f->item[(f->first + i) % f->ring]; }

static bool feed_stopped(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    bool yes = f->stop;
    pthread_mutex_unlock(&f->lock);
    return yes;
}

static void item_read(struct feed *f, struct item *it)
{
    struct ds *d = f->want.ds;
    it->e = (struct err){0};
    for (int i = 0; i < it->n && !feed_stopped(f); i++) {
        uint64_t visit = feed_visit(f->count, it->position + (uint64_t)i);
        for (int k = 0; k < f->want.n_fields; k++) {
            void *out = (char *)it->value[k] + (size_t)i * f->bytes[k];
            if (d->kind->read(d, (uint64_t)it->id[i], visit, f->want.field[k], out, &it->e)) return;
        }
    }
}

static void *feed_main(void *arg)
{
    struct feed *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        if (f->filled == f->n) { pthread_cond_wait(&f->changed, &f->lock); continue; }
        struct item *it = item_at(f, f->filled);
        pthread_mutex_unlock(&f->lock);
        item_read(f, it);
        pthread_mutex_lock(&f->lock);
        f->filled++;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void feed_free(struct feed *f)
{
    for (int i = 0; i < f->ring; i++) {
        for (int k = 0; k < f->want.n_fields; k++) free(f->item[i].value[k]);
        free(f->item[i].id);
    }
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f->item);
    free(f);
}

/* Starts the thread with signals blocked: they are for the main thread. */
static int thread_start(struct feed *f)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&f->thread, NULL, feed_main, f);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad;
}

static size_t field_bytes(const struct ds *d, int field)
{
    return (size_t)shape_count(&d->field[field].shape) * dtype_bytes(d->field[field].type);
}

size_t feed_bytes(const struct feed_want *w)
{
    size_t sample = sizeof(int64_t);
    for (int k = 0; k < w->n_fields; k++) sample += field_bytes(w->ds, w->field[k]);
    return (size_t)w->depth * (size_t)w->max_samples * sample;
}

int feed_open(const struct feed_want *w, struct feed **out, struct err *e)
{
    struct feed *f = mem_alloc(sizeof *f);
    *f = (struct feed){.want = *w, .ring = w->depth, .count = w->ds->kind->count(w->ds)};
    for (int k = 0; k < w->n_fields; k++) f->bytes[k] = field_bytes(w->ds, w->field[k]);
    f->item = mem_alloc((size_t)f->ring * sizeof *f->item);
    for (int i = 0; i < f->ring; i++) {
        for (int k = 0; k < w->n_fields; k++)
            f->item[i].value[k] = mem_alloc(size_mul(f->bytes[k], (size_t)w->max_samples));
        f->item[i].id = mem_alloc((size_t)w->max_samples * sizeof(int64_t));
    }
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    *out = NULL;
    if (thread_start(f)) {
        feed_free(f);
        return err_set(e, E_OS, "cannot create the thread that reads samples (ulimit -u)");
    }
    *out = f;
    return 0;
}

static int request_add(struct feed *f, int n, const int64_t *id, uint64_t position, struct err *e)
{
    if (n > f->want.max_samples)
        return err_set(e, E_INTERNAL, "%d samples are requested at once, the feed takes %d", n, f->want.max_samples);
    if (f->n == f->ring)
        return err_set(e, E_INTERNAL, "more samples are requested than the feed holds");
    struct item *it = item_at(f, f->n);
    it->n = n;
    it->position = position;
    memcpy(it->id, id, (size_t)n * sizeof *id);
    f->n++;
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

/* Called with the lock held, which it releases meanwhile. */
static int meanwhile_run(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    if (!m) return 0;
    pthread_mutex_unlock(&f->lock);
    int bad = m->run(m->ctx, e);
    pthread_mutex_lock(&f->lock);
    return bad;
}

/* Waits for the oldest request, for storage may stall. */
static int oldest_wait(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    enum { LOOK_NS = 2000000 };
    while (f->n > f->taken && f->filled == f->taken) {
        if (meanwhile_run(f, m, e)) return -1;
        if (f->filled > f->taken) return 0;
        clock_cond_wait(&f->changed, &f->lock, LOOK_NS);
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

static int oldest_take(struct feed *f, const struct feed_meanwhile *m, void *const **value, struct err *e)
{
    if (f->taken) return err_set(e, E_INTERNAL, "samples are taken before others are given back");
    if (oldest_wait(f, m, e)) return -1;
    if (!f->n) return err_set(e, E_INTERNAL, "samples are taken that nobody requested");
    struct item *it = item_at(f, f->taken++);
    *value = it->value;
    if (!it->e.code) return 0;
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

int feed_drop(struct feed *f, const struct feed_meanwhile *meanwhile, struct err *e)
{
    int bad = 0;
    pthread_mutex_lock(&f->lock);
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
    bool ready = f->filled > f->taken && !item_at(f, f->taken)->e.code;
    pthread_mutex_unlock(&f->lock);
    return ready;
}

void feed_close(struct feed *f)
{
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    feed_free(f);
}
