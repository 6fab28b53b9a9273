#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/mem.h"
#include "data/volume_cache.h"

/* kept: its bytes count; others go with their last user */
struct block { void *at; size_t bytes; int users; bool making, kept; };
struct volume_cache {
    size_t most, kept, all;
    uint64_t numbers;
    struct block *block;
    pthread_mutex_t lock;
    pthread_cond_t made;
};

struct volume_cache *volume_cache_new(uint64_t numbers, size_t most)
{
    struct volume_cache *c = mem_alloc(sizeof *c);
    *c = (struct volume_cache){.most = most, .numbers = numbers};
    c->block = mem_alloc(size_mul(numbers + 1, sizeof *c->block));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    return c;
}

/* With the lock held, which it releases meanwhile. */
static int block_make(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e)
{
    struct block *b = &c->block[number];
    b->making = true;
    pthread_mutex_unlock(&c->lock);
    void *at = mem_alloc(m->bytes);
    int bad = m->make(m->ctx, number, at, e);
    if (bad) free(at);
    pthread_mutex_lock(&c->lock);
    b->making = false;
    pthread_cond_broadcast(&c->made);
    if (bad) return -1;
    b->at = at;
    b->bytes = m->bytes;
    b->kept = m->bytes <= c->most - c->kept;
    c->kept += b->kept ? m->bytes : 0;
    c->all += m->bytes;
    return 0;
}

const void *volume_cache_take(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e)
{
    struct block *b = &c->block[number];
    const void *at = NULL;
    pthread_mutex_lock(&c->lock);
    while (b->making) pthread_cond_wait(&c->made, &c->lock);
    if (b->at || !block_make(c, number, m, e)) {
        b->users++;
        at = b->at;
    }
    pthread_mutex_unlock(&c->lock);
    return at;
}

void volume_cache_give(struct volume_cache *c, uint64_t number)
{
    struct block *b = &c->block[number];
    pthread_mutex_lock(&c->lock);
    if (!--b->users && !b->kept) {
        free(b->at);
        b->at = NULL;
        c->all -= b->bytes;
    }
    pthread_mutex_unlock(&c->lock);
}

size_t volume_cache_bytes(struct volume_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->all;
    pthread_mutex_unlock(&c->lock);
    return n;
}

void volume_cache_free(struct volume_cache *c)
{
    if (!c) return;
    for (uint64_t i = 0; i < c->numbers; i++) free(c->block[i].at);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->made);
    free(c->block);
    free(c);
}
