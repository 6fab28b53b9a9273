/* A bounded queue between two threads: a lock, a condition, copies in and out. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "cluster/queue.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    int slots, n, first;
    size_t bytes;
    char *at;
};

struct queue *queue_new(int slots, size_t bytes)
{
    struct queue *r = mem_alloc(sizeof *r);
    clock_cond_init(&r->filled);
    pthread_mutex_init(&r->lock, NULL);
    r->slots = slots;
    r->bytes = bytes;
    r->at = mem_alloc((size_t)slots * bytes);
    return r;
}

bool queue_put(struct queue *r, const void *message)
{
    pthread_mutex_lock(&r->lock);
    bool fits = r->n < r->slots;
    if (fits) {
        memcpy(r->at + (size_t)((r->first + r->n++) % r->slots) * r->bytes, message, r->bytes);
        pthread_cond_signal(&r->filled);
    }
    pthread_mutex_unlock(&r->lock);
    return fits;
}

bool queue_get(struct queue *r, void *message, int wait_ms)
{
    pthread_mutex_lock(&r->lock);
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000;
    for (uint64_t now; !r->n && wait_ms > 0 && (now = clock_ns()) < until;)
        clock_cond_wait(&r->filled, &r->lock, until - now);
    bool there = r->n > 0;
    if (there) {
        memcpy(message, r->at + (size_t)r->first * r->bytes, r->bytes);
        r->first = (r->first + 1) % r->slots;
        r->n--;
    }
    pthread_mutex_unlock(&r->lock);
    return there;
}

bool queue_unput(struct queue *r, void *message)
{
    pthread_mutex_lock(&r->lock);
    bool there = r->n > 0;
    if (there) memcpy(message, r->at + (size_t)((r->first + --r->n) % r->slots) * r->bytes, r->bytes);
    pthread_mutex_unlock(&r->lock);
    return there;
}

void queue_free(struct queue *r)
{
    if (!r) return;
    pthread_cond_destroy(&r->filled);
    pthread_mutex_destroy(&r->lock);
    free(r->at);
    free(r);
}
