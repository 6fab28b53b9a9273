/* A bounded queue between two threads: a lock, a condition, copies in and out. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "daemon/run/ring.h"

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    int slots, n, first;
    size_t bytes;
    char *at;
};

struct ring *ring_new(int slots, size_t bytes)
{
    struct ring *r = mem_alloc(sizeof *r);
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&r->filled, &a);
    pthread_condattr_destroy(&a);
    pthread_mutex_init(&r->lock, NULL);
    r->slots = slots;
    r->bytes = bytes;
    r->at = mem_alloc((size_t)slots * bytes);
    return r;
}

bool ring_put(struct ring *r, const void *message)
{
    pthread_mutex_lock(&r->lock);
    bool room = r->n < r->slots;
    if (room) {
        memcpy(r->at + (size_t)((r->first + r->n++) % r->slots) * r->bytes, message, r->bytes);
        pthread_cond_signal(&r->filled);
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

static struct timespec deadline(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) { t.tv_sec++; t.tv_nsec -= 1000000000; }
    return t;
}

bool ring_get(struct ring *r, void *message, int wait_ms)
{
    pthread_mutex_lock(&r->lock);
    if (!r->n && wait_ms > 0) {
        struct timespec until = deadline(wait_ms);
        while (!r->n && pthread_cond_timedwait(&r->filled, &r->lock, &until) == 0) continue;
    }
    bool there = r->n > 0;
    if (there) {
        memcpy(message, r->at + (size_t)r->first * r->bytes, r->bytes);
        r->first = (r->first + 1) % r->slots;
        r->n--;
    }
    pthread_mutex_unlock(&r->lock);
    return there;
}

void ring_free(struct ring *r)
{
    if (!r) return;
    pthread_cond_destroy(&r->filled);
    pthread_mutex_destroy(&r->lock);
    free(r->at);
    free(r);
}
