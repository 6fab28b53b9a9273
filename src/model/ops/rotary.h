/* For the rotary operator and backends: angles of the rotations. */
#ifndef OPS_ROTARY_H
#define OPS_ROTARY_H
#include <math.h>
#include "model/op.h"

enum { ROTARY_HEADS, ROTARY_THETA, ROTARY_TYPE, ROTARY_FACTOR, ROTARY_LOW, ROTARY_HIGH, ROTARY_OLD };
enum { ROTARY_DEFAULT, ROTARY_LINEAR, ROTARY_LLAMA3 };

/* n samples of heads x width channels at `points` points; half: pairs of a head, channels i and i + half. */
struct rotary { int64_t n, heads, half, points; };
static inline struct rotary rotary_of(const struct graph *g, const struct node *node, int n)
{
    const struct extent d = extent_of(g, node->out, n);
    const int64_t heads = node->attr[ROTARY_HEADS].i[0];
    return (struct rotary){n, heads, d.c / heads / 2, d.points};
}

/* Angle of pair i of `half` for each position. Type llama3 keeps short waves, divides long ones by `factor`, and blends
 * between them (transformers, modeling_rope_utils). */
static inline float rotary_rate(const struct node *node, int64_t i, int64_t half)
{
    const struct attr_value *a = node->attr;
    const double rate = pow(a[ROTARY_THETA].r, -(double)i / (double)half), factor = a[ROTARY_FACTOR].r;
    if (a[ROTARY_TYPE].i[0] == ROTARY_DEFAULT) return (float)rate;
    if (a[ROTARY_TYPE].i[0] == ROTARY_LINEAR) return (float)(rate / factor);
    const double low = a[ROTARY_LOW].r, high = a[ROTARY_HIGH].r, old = (double)a[ROTARY_OLD].i[0];
    const double wave = 2 * M_PI / rate;
    if (wave > old / low) return (float)(rate / factor);
    if (wave < old / high) return (float)rate;
    const double keep = (old / wave - low) / (high - low);
    return (float)((1 - keep) * rate / factor + keep * rate);
}

/* The position of a point: its index, or what the second input says. */
static inline int64_t rotary_position(const int32_t *positions, int64_t points, int64_t sample, int64_t point)
{
    return positions ? positions[sample * points + point] : point;
}
/* Angles are rounded to float, as in transformers. */
static inline float rotary_angle(int64_t position, float rate) { return (float)position * rate; }
#endif
