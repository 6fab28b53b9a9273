#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/mem.h"
#include "data/volume_cache.h"

/* kept: in the cache, and counts in volume_cache.kept. Other blocks rest without users, or are freed. */
struct cache_block { void *at; size_t bytes; int users; bool making, kept; };
enum { RESTS = 2 };
struct volume_cache {
    size_t most, kept, spare, all;
    uint64_t numbers, rest[RESTS];                       /* the oldest first */
    int rests;
    struct cache_block *block;
    pthread_mutex_t lock;
    pthread_cond_t made;
};

struct volume_cache *volume_cache_new(uint64_t numbers, size_t most, size_t spare)
{
    struct volume_cache *c = mem_alloc(sizeof *c);
    *c = (struct volume_cache){.most = most, .spare = spare, .numbers = numbers};
    c->block = mem_alloc(size_mul(numbers + 1, sizeof *c->block));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    return c;
}

/* With the lock held; releases it meanwhile. */
static int block_make(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e)
{
    struct cache_block *b = &c->block[number];
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

/* Removes entry i of the resting blocks. */
static void rest_end(struct volume_cache *c, int i)
{
    c->rests--;
    for (; i < c->rests; i++) c->rest[i] = c->rest[i + 1];
}

static void block_drop(struct volume_cache *c, struct cache_block *b)
{
    free(b->at);
    b->at = NULL;
    c->all -= b->bytes;
}

static size_t resting_bytes(const struct volume_cache *c)
{
    size_t n = 0;
    for (int i = 0; i < c->rests; i++) n += c->block[c->rest[i]].bytes;
    return n;
}

static void block_rest(struct volume_cache *c, uint64_t number)
{
    struct cache_block *b = &c->block[number];
    while (c->rests && (c->rests == RESTS || resting_bytes(c) + b->bytes > c->spare)) {
        block_drop(c, &c->block[c->rest[0]]);
        rest_end(c, 0);
    }
    if (b->bytes <= c->spare) c->rest[c->rests++] = number;
    else block_drop(c, b);
}

const void *volume_cache_take(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e)
{
    struct cache_block *b = &c->block[number];
    const void *at = NULL;
    pthread_mutex_lock(&c->lock);
    while (b->making) pthread_cond_wait(&c->made, &c->lock);
    for (int i = 0; i < c->rests; i++)
        if (c->rest[i] == number) rest_end(c, i);
    if (b->at || !block_make(c, number, m, e)) {
        b->users++;
        at = b->at;
    }
    pthread_mutex_unlock(&c->lock);
    return at;
}

void volume_cache_give(struct volume_cache *c, uint64_t number)
{
    struct cache_block *b = &c->block[number];
    pthread_mutex_lock(&c->lock);
    if (!--b->users && !b->kept) block_rest(c, number);
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
