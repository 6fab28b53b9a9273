/* For the attention operator and backends. op_call.saved of a micro-batch has floats [sample][head][position][2]: the
 * largest score m over all attended positions, and 1 / the sum of e^(score - m). They are separate, because a float
 * with m + log sum would have no digits left for the logarithm of large scores. A library's kernels may store something
 * else there that fits; so both passes are of one row. */
#ifndef OPS_ATTENTION_H
#define OPS_ATTENTION_H
#include <math.h>
#include "model/op.h"

enum { ATTENTION_HEADS, ATTENTION_KV_HEADS, ATTENTION_CAUSAL };

/* n samples; points: positions; heads of queries; kv_heads of keys and values: query head i reads number
 * i / (heads / kv_heads); width: channels per head; scale: factor of scores. causal: position i sees those up to i,
 * from i - p_i on, where p_i is its position in the last input, if there is one. apart: queries, keys and values are
 * three inputs. */
struct attention { int64_t n, points, heads, kv_heads, width; double scale; bool causal, apart; };
static inline struct attention attention_of(const struct graph *g, const struct node *node, int n)
{
    const struct shape *s = &g->tensor[node->out].shape;
    const struct attr_value *a = node->attr;
    int64_t heads = a[ATTENTION_HEADS].i[0], kv = a[ATTENTION_KV_HEADS].i[0], width = s->d[0] / heads;
    return (struct attention){n, shape_count(s) / s->d[0], heads, kv ? kv : heads, width, 1 / sqrt((double)width),
                              a[ATTENTION_CAUSAL].i[0] != 0, node->n_in > 1};
}
/* The input with the positions; -1: none. */
static inline int attention_positions(const struct node *node) { return node->n_in > 3 ? 3 : -1; }

/* Position i of a sample sees positions from first to last. positions: of the sample, or NULL. */
struct attention_span { int64_t first, last; };
static inline struct attention_span attention_sees(const struct attention *a, const int32_t *positions, int64_t i)
{
    if (!a->causal) return (struct attention_span){0, a->points - 1};
    const int64_t first = positions ? i - positions[i] : 0;
    return (struct attention_span){first < 0 ? 0 : first > i ? i : first, i};
}

#endif
