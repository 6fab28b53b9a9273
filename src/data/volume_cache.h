/* What was made of files, kept for the next time: blocks of memory by number, shared by threads. Once it is full
 * nothing more is kept, and nothing is given up for something else: so of data that are read round and round the share
 * is kept that finds room. What finds none rests when its last user has given it, until others come to rest: so
 * neighbouring uses make it once. For data sets. Any thread. */
#ifndef DATA_VOLUME_CACHE_H
#define DATA_VOLUME_CACHE_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct volume_cache;
/* numbers: 0 to that - 1; most: bytes of what is kept; spare: of what rests, which are two blocks at most */
struct volume_cache *volume_cache_new(uint64_t numbers, size_t most, size_t spare);
/* Fills in block `number`, all zeros, of so many bytes. */
struct volume_maker { int (*make)(void *ctx, uint64_t number, void *out, struct err *e); void *ctx; size_t bytes; };
/* The block, made if it is not there; one thread makes it while others that want it wait. NULL: it cannot be made. */
const void *volume_cache_take(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e);
void volume_cache_give(struct volume_cache *c, uint64_t number);   /* each that was taken */
size_t volume_cache_bytes(struct volume_cache *c);       /* of all blocks that are there */
void volume_cache_free(struct volume_cache *c);          /* c may be NULL */

#endif
