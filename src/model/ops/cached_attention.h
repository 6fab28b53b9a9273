/* For the cached_attention operator and backends. */
#ifndef OPS_CACHED_ATTENTION_H
#define OPS_CACHED_ATTENTION_H
#include <math.h>
#include <string.h>
#include "model/op.h"

enum { CACHED_HEADS, CACHED_KV_HEADS, CACHED_CONTEXT, CACHED_SLOTS };

/* heads of queries; kv_heads of keys and values: query head i reads number i / (heads / kv_heads); width: channels of a
 * head; scale: factor of scores; line: floats of an entry of the cache, keys, then values. */
struct cached_attention { int64_t heads, kv_heads, width, context, line; double scale; };
static inline struct cached_attention cached_attention_of(const struct graph *g, const struct node *node)
{
    const struct attr_value *a = node->attr;
    const int64_t heads = a[CACHED_HEADS].i[0], kv = a[CACHED_KV_HEADS].i[0] ? a[CACHED_KV_HEADS].i[0] : heads,
                  width = g->tensor[node->out].shape.d[0] / heads;
    return (struct cached_attention){heads, kv, width, a[CACHED_CONTEXT].i[0], 2 * kv * width,
                                     1 / sqrt((double)width)};
}

/* Where sample n's sequence begins in the cache. in: the operator's inputs. */
static inline int64_t cached_attention_slot(const struct cached_attention *a, const void *const *in, int64_t n)
{
    return ((const int32_t *)in[4])[n] * a->context * a->line;
}
/* Puts the keys and values of sample n into the cache. */
static inline void cached_attention_enter(const struct cached_attention *a, const void *const *in, int64_t n,
                                          float *cache)
{
    const int64_t half = a->line / 2;
    float *entry = cache + cached_attention_slot(a, in, n) + ((const int32_t *)in[3])[n] * a->line;
    memcpy(entry, (const float *)in[1] + n * half, (size_t)half * sizeof *entry);
    memcpy(entry + half, (const float *)in[2] + n * half, (size_t)half * sizeof *entry);
}
/* The keys that query head h of sample n reads: entries from position 0 on, a->line apart. */
static inline const float *cached_attention_keys(const struct cached_attention *a, const void *const *in, int64_t n,
                                                 int64_t h, const float *cache)
{
    return cache + cached_attention_slot(a, in, n) + h / (a->heads / a->kv_heads) * a->width;
}

#endif
