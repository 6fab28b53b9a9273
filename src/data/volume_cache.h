/* Caches blocks made from files, by number, shared by threads. A full cache keeps no more blocks and evicts none, so
 * when data are read in cycles, a fixed share stays cached. A block that does not fit rests after its last use, until
 * other blocks come to rest. So neighbouring uses make it only once. For data sets. Any thread. */
#ifndef DATA_VOLUME_CACHE_H
#define DATA_VOLUME_CACHE_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct volume_cache;
/* numbers: blocks are 0 to numbers - 1; most: bytes for cached blocks; spare: bytes for resting blocks, at most two */
struct volume_cache *volume_cache_new(uint64_t numbers, size_t most, size_t spare);
/* Fills in block `number` of `bytes` zeroed bytes. */
struct volume_maker { int (*make)(void *ctx, uint64_t number, void *out, struct err *e); void *ctx; size_t bytes; };
/* The block, made if needed. One thread makes it while other threads wait for it. NULL: making it failed. */
const void *volume_cache_take(struct volume_cache *c, uint64_t number, const struct volume_maker *m, struct err *e);
void volume_cache_give(struct volume_cache *c, uint64_t number);   /* call it once for each take */
size_t volume_cache_bytes(struct volume_cache *c);       /* of all existing blocks */
void volume_cache_free(struct volume_cache *c);          /* c may be NULL */

#endif
