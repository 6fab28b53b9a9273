/* Which samples a batch has, and a thread that reads them ahead. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/rng.h"
#include "data/ds.h"

/* ---- order ------------------------------------------------------------------------------------------------------- */

int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch)
{
    *epoch = 0;
    if (!o->count) return 0;
    uint64_t left = o->count - position % o->count;
    int n = (o->shuffle || !o->wrap) && left < (uint64_t)batch ? (int)left : batch;
    *epoch = position / o->count;
    for (int i = 0; i < n; i++) {
        uint64_t at = position + (uint64_t)i, within = at % o->count;
        id[i] = (int64_t)(o->shuffle ? rng_permute(o->seed, (uint32_t)(at / o->count), within, o->count) : within);
    }
    return n;
}

/* ---- prefetch: a ring of depth + 1 buffers; one is lent to the taker --------------------------------------------- */

struct item { float *x; char *y; int64_t *id; int n; struct err e; };
struct feed {
    struct ds *d;
    size_t x_bytes, y_bytes;                             /* of a sample; 0: not wanted */
    /* item[first]: oldest request; filled: how many are read; n: how many are requested */
    int ring, first, filled, n;
    int max_samples;
    bool lent, stop;
    struct item *item;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
};

static bool stopped(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    bool yes = f->stop;
    pthread_mutex_unlock(&f->lock);
    return yes;
}

static void item_read(struct feed *f, struct item *it)
{
    it->e = (struct err){0};
    for (int i = 0; i < it->n && !stopped(f); i++) {
        float *x = f->x_bytes ? (float *)((char *)it->x + (size_t)i * f->x_bytes) : NULL;
        char *y = f->y_bytes ? it->y + (size_t)i * f->y_bytes : NULL;
        if (f->d->kind->read(f->d, (uint64_t)it->id[i], x, y, &it->e)) return;
    }
}

static void *feed_main(void *arg)
{
    struct feed *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        if (f->filled == f->n) { pthread_cond_wait(&f->changed, &f->lock); continue; }
        struct item *it = &f->item[(f->first + f->filled) % f->ring];
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
    for (int i = 0; i < f->ring; i++) { free(f->item[i].x); free(f->item[i].y); free(f->item[i].id); }
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f->item);
    free(f);
}

/* Signals are the main thread's. */
static int thread_start(struct feed *f)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&f->thread, NULL, feed_main, f);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad;
}

int feed_open(struct ds *d, bool want_x, bool want_y, size_t x_bytes, size_t y_bytes, int max_samples, int depth,
              struct feed **out, struct err *e)
{
    struct feed *f = mem_alloc(sizeof *f);
    *f = (struct feed){.d = d,
                       .x_bytes = want_x ? x_bytes : 0,
                       .y_bytes = want_y ? y_bytes : 0,
                       .ring = depth + 1,
                       .max_samples = max_samples};
    f->item = mem_alloc((size_t)f->ring * sizeof *f->item);
    for (int i = 0; i < f->ring; i++) {
        f->item[i].x = mem_alloc(size_mul(f->x_bytes, (size_t)max_samples));
        f->item[i].y = mem_alloc(size_mul(f->y_bytes, (size_t)max_samples));
        f->item[i].id = mem_alloc((size_t)max_samples * sizeof(int64_t));
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    *out = NULL;
    if (thread_start(f)) {
        feed_free(f);
        return err_set(e, E_OS, "cannot create the thread that reads samples (ulimit -u)");
    }
    *out = f;
    return 0;
}

/* The buffer that was lent goes back when the next is asked for. */
static void lent_return(struct feed *f)
{
    if (!f->lent) return;
    f->first = (f->first + 1) % f->ring;
    f->n--;
    f->filled--;
    f->lent = false;
}

static int request_add(struct feed *f, int n, const int64_t *id, struct err *e)
{
    if (f->n - f->lent == f->ring - 1) return err_set(e, E_INTERNAL, "more samples are requested than the feed holds");
    if (n > f->max_samples)
        return err_set(e, E_INTERNAL, "%d samples are requested at once, the feed takes %d", n, f->max_samples);
    struct item *it = &f->item[(f->first + f->n) % f->ring];
    it->n = n;
    memcpy(it->id, id, (size_t)n * sizeof *id);
    f->n++;
    pthread_cond_broadcast(&f->changed);
    return 0;
}

int feed_request(struct feed *f, int n, const int64_t *id, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    int bad = request_add(f, n, id, e);
    pthread_mutex_unlock(&f->lock);
    return bad;
}

/* With the lock, which meanwhile goes without. */
static int meanwhile_run(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    if (!m) return 0;
    pthread_mutex_unlock(&f->lock);
    int bad = m->run(m->ctx, e);
    pthread_mutex_lock(&f->lock);
    return bad;
}

/* Storage may stall. */
static int oldest_wait(struct feed *f, const struct feed_meanwhile *m, struct err *e)
{
    enum { LOOK_NS = 2000000 };
    while (f->n && !f->filled) {
        if (meanwhile_run(f, m, e)) return -1;
        if (f->filled) return 0;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) { until.tv_nsec -= 1000000000; until.tv_sec++; }
        pthread_cond_timedwait(&f->changed, &f->lock, &until);
    }
    return 0;
}

static int oldest_take(struct feed *f, const struct feed_meanwhile *m, const float **x, const void **y, struct err *e)
{
    lent_return(f);
    if (oldest_wait(f, m, e)) return -1;
    if (!f->n) return err_set(e, E_INTERNAL, "samples are taken that nobody requested");
    struct item *it = &f->item[f->first];
    f->lent = true;
    *x = f->x_bytes ? it->x : NULL;
    *y = f->y_bytes ? it->y : NULL;
    return it->e.code ? err_set(e, it->e.code, "%s", it->e.text) : 0;
}

int feed_take(struct feed *f, const struct feed_meanwhile *meanwhile, const float **x, const void **y, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    int bad = oldest_take(f, meanwhile, x, y, e);
    pthread_mutex_unlock(&f->lock);
    return bad;
}

bool feed_ready(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    bool ready = f->filled > f->lent && !f->item[(f->first + f->lent) % f->ring].e.code;
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
