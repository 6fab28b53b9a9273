/* Vector kernels for plain layout on any CPU: a block is a channel, lanes 1. */
#include <string.h>
#include "backend/cpu/cpu_vec.h"

#pragma GCC optimize("O3") /* vector instructions where the order of sums does not matter */

/* Channels that are summed in parallel: a single sum adds its values one after another and waits for each addition. */
enum { SIDE = VEC_PLAIN_BLOCKS };

static int64_t plane_at(const struct vec_shape *s, int n, int64_t c) { return (n * s->blocks + c) * s->points; }

INLINE void planes_sum(const float *x, int64_t points, int some, double *sum)
{
    for (int64_t p = 0; p < points; p++)
        for (int k = 0; k < some; k++) sum[k] += x[k * points + p];
}

INLINE void planes_squares(const float *x, int64_t points, int some, const double *m, double *sq)
{
    for (int64_t p = 0; p < points; p++)
        for (int k = 0; k < some; k++) sq[k] += (x[k * points + p] - m[k]) * (x[k * points + p] - m[k]);
}

static void norm_stats(const struct vec_norm *a, double *mean, double *var)
{
    const struct vec_shape *s = &a->s;
    double count = (double)s->n * (double)s->points;
    for (int64_t c = a->from; c < a->to; c += SIDE) {
        int some = a->to - c < SIDE ? (int)(a->to - c) : SIDE;
        double m[SIDE] = {0}, sq[SIDE] = {0};
        for (int n = 0; n < s->n; n++) {
            const float *x = a->x + plane_at(s, n, c);
            if (some == SIDE) planes_sum(x, s->points, SIDE, m);
            else planes_sum(x, s->points, some, m);
        }
        for (int k = 0; k < some; k++) m[k] /= count;
        for (int n = 0; n < s->n; n++) {
            const float *x = a->x + plane_at(s, n, c);
            if (some == SIDE) planes_squares(x, s->points, SIDE, m, sq);
            else planes_squares(x, s->points, some, m, sq);
        }
        for (int k = 0; k < some; k++) {
            mean[c + k] = m[k];
            var[c + k] = sq[k] / count;
        }
    }
}

/* One plane; y may be other. */
INLINE void plane_forward(const struct vec_norm *a, int n, int64_t c, bool adds, bool relu)
{
    int64_t at = plane_at(&a->s, n, c), points = a->s.points;
    const float *x = a->x + at, *other = adds ? a->other + at : NULL;
    float *y = a->y + at, mean = a->mean[c], scale = a->scale[c], beta = a->beta[c];
    for (int64_t i = 0; i < points; i++) {
        float v = (x[i] - mean) * scale + beta;
        if (adds) v += other[i];
        y[i] = relu && v < 0 ? 0 : v;
    }
}

static void norm_forward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++)
        /* backward, because the last data of the first pass is still in the cache */
        for (int n = a->s.n - 1; n >= 0; n--) {
            if (a->other && a->relu) plane_forward(a, n, c, true, true);
            else if (a->other) plane_forward(a, n, c, true, false);
            else if (a->relu) plane_forward(a, n, c, false, true);
            else plane_forward(a, n, c, false, false);
        }
}

/* 0 where v <= 0, else g; g also where v is NaN. Without a branch, because no processor could predict it. */
INLINE float where_positive(float v, float g)
{
    uint32_t bits;
    memcpy(&bits, &g, sizeof bits);
    bits &= -(uint32_t) !(v <= 0);
    memcpy(&g, &bits, sizeof g);
    return g;
}

/* As in norm_forward, so that the recomputed output has the sign of the stored one. */
INLINE float masked(const struct vec_norm *a, enum vec_mask mask, int64_t i, int64_t c)
{
    float g = a->gout[i];
    if (mask == MASK_OUT) return where_positive(a->out[i], g);
    if (mask == MASK_AGAIN) return where_positive((a->x[i] - a->mean[c]) * a->scale[c] + a->beta[c], g);
    return g;
}

struct plain_sums { double g[SIDE], gx[SIDE]; };

/* For `some` planes in parallel. */
INLINE void planes_reduce(const struct vec_norm *a, enum vec_mask mask, int64_t at, int64_t c, int some,
                          struct plain_sums *sum)
{
    for (int64_t p = 0; p < a->s.points; p++)
        for (int k = 0; k < some; k++) {
            int64_t i = at + k * a->s.points + p;
            float g = masked(a, mask, i, c + k);
            sum->g[k] += g;
            sum->gx[k] += (double)g * (a->x[i] - a->mean[c + k]);
            if (a->gother) a->gother[i] = (a->gother_acc ? a->gother[i] : 0) + g;
        }
}

static void norm_reduce(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c += SIDE) {
        int some = a->to - c < SIDE ? (int)(a->to - c) : SIDE;
        struct plain_sums sum = {0};
        for (int n = 0; n < a->s.n; n++) {
            int64_t at = plane_at(&a->s, n, c);
            if (some < SIDE) planes_reduce(a, a->mask, at, c, some, &sum);
            else if (a->mask == MASK_OUT) planes_reduce(a, MASK_OUT, at, c, SIDE, &sum);
            else if (a->mask == MASK_AGAIN) planes_reduce(a, MASK_AGAIN, at, c, SIDE, &sum);
            else planes_reduce(a, MASK_NONE, at, c, SIDE, &sum);
        }
        for (int k = 0; k < some; k++) {
            a->sum_g[c + k] = sum.g[k];
            a->sum_gx[c + k] = sum.gx[k];
        }
    }
}

/* gx may be gout. */
INLINE void plane_backward(const struct vec_norm *a, enum vec_mask mask, int64_t at, int64_t c, bool acc)
{
    float scale = a->scale[c], c0 = a->c0[c], c1 = a->c1[c], mean = a->mean[c];
    for (int64_t i = at; i < at + a->s.points; i++) {
        float d = scale * masked(a, mask, i, c) - c0 - (a->x[i] - mean) * c1;
        a->gx[i] = (acc ? a->gx[i] : 0) + d;
    }
}

static void norm_backward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++)
        /* backward, because the last data of the first pass is still in the cache */
        for (int n = a->s.n - 1; n >= 0; n--) {
            int64_t at = plane_at(&a->s, n, c);
            if (a->gx_acc) plane_backward(a, a->mask, at, c, true);
            else if (a->mask == MASK_OUT) plane_backward(a, MASK_OUT, at, c, false);
            else if (a->mask == MASK_AGAIN) plane_backward(a, MASK_AGAIN, at, c, false);
            else plane_backward(a, MASK_NONE, at, c, false);
        }
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void sum(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void relu(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(float *gx, const float *y, const float *g, size_t n, bool acc)
{
    for (size_t i = 0; i < n; i++) gx[i] = (acc ? gx[i] : 0) + where_positive(y[i], g[i]);
}

static double sumsq(const float *x, size_t n)
{
    double a = 0, b = 0, c = 0, d = 0, rest[3] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a += (double)x[i] * x[i];
        b += (double)x[i + 1] * x[i + 1];
        c += (double)x[i + 2] * x[i + 2];
        d += (double)x[i + 3] * x[i + 3];
    }
    for (; i < n; i++) rest[i % 4] = (double)x[i] * x[i];
    return ((a + rest[0]) + (b + rest[1])) + ((c + rest[2]) + d);
}

static void mean(const struct vec_shape *s, const float *x, float *y)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++) {
        double total = 0;
        for (int64_t p = 0; p < s->points; p++) total += *x++;
        y[k] = (float)(total / (double)s->points);
    }
}

static void mean_backward(const struct vec_shape *s, const float *gy, float *gx, bool acc)
{
    float scale = 1.0f / (float)s->points;
    for (int64_t k = 0; k < s->n * s->blocks; k++)
        for (int64_t p = 0; p < s->points; p++, gx++) *gx = (acc ? *gx : 0) + gy[k] * scale;
}

/* Kernel positions of a window that lie on the plane. */
struct plane_span { int64_t from, to; };
INLINE struct plane_span span_of(const struct vec_pool *p, int dim, int64_t out)
{
    int64_t at = out * p->stride[dim] - p->padding[dim], left = p->in[dim] - at;
    return (struct plane_span){at < 0 ? -at : 0, left < p->kernel[dim] ? left : p->kernel[dim]};
}

INLINE float chosen(float a, float b, unsigned b_bits)
{
    unsigned x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x ^= (x ^ y) & b_bits;
    memcpy(&a, &x, sizeof a);
    return a;
}

/* The first of equal maxima; a NaN always wins. No branches on values. */
static void window_max(const struct vec_pool *p, const float *x, const int64_t o[3], float *y, uint8_t *index)
{
    const struct plane_span a = span_of(p, 0, o[0]), b = span_of(p, 1, o[1]), c = span_of(p, 2, o[2]);
    const int64_t row = p->in[2], plane = p->in[1] * row;
    const float *corner = x + (o[0] * p->stride[0] - p->padding[0]) * plane +
                          (o[1] * p->stride[1] - p->padding[1]) * row + o[2] * p->stride[2] - p->padding[2];
    float best = corner[a.from * plane + b.from * row + c.from];
    unsigned at = (unsigned)((a.from * p->kernel[1] + b.from) * p->kernel[2] + c.from);
    for (int64_t i = a.from; i < a.to; i++)
        for (int64_t j = b.from; j < b.to; j++)
            for (int64_t k = c.from; k < c.to; k++) {
                float v = corner[i * plane + j * row + k];
                unsigned taken = -(unsigned)((v > best) | (v != v));
                best = chosen(best, v, taken);
                at ^= (at ^ (unsigned)((i * p->kernel[1] + j) * p->kernel[2] + k)) & taken;
            }
    *y = best;
    if (index) *index = (uint8_t)at;
}

#define POOL_OUTPUTS(p, o) \
    for (int64_t o[3] = {0}; o[0] < (p)->out[0]; o[0]++) \
        for (o[1] = 0; o[1] < (p)->out[1]; o[1]++) \
            for (o[2] = 0; o[2] < (p)->out[2]; o[2]++)

static void max_pool(const struct vec_pool *p, const float *x, float *y, uint8_t *index)
{
    for (int64_t n = 0; n < p->planes; n++, x += p->in[0] * p->in[1] * p->in[2])
        POOL_OUTPUTS(p, o) window_max(p, x, o, y++, index ? index++ : NULL);
}

static void max_pool_backward(const struct vec_pool *p, const uint8_t *index, const float *gy, float *gx, bool acc)
{
    const int64_t plane = p->in[0] * p->in[1] * p->in[2], row = p->kernel[2];
    if (!acc) memset(gx, 0, (size_t)(p->planes * plane) * sizeof *gx);
    for (int64_t n = 0; n < p->planes; n++, gx += plane)
        POOL_OUTPUTS(p, o) {
            const int64_t q = pool_point(p, 0, o[0], *index / row / p->kernel[1]),
                          r = pool_point(p, 1, o[1], *index / row % p->kernel[1]),
                          c = pool_point(p, 2, o[2], *index % row);
            gx[(q * p->in[1] + r) * p->in[2] + c] += *gy++;
            index++;
        }
}

#define LANES 1
#include "backend/cpu/cpu_vec_loops.h"

const struct vec_ops vec_plain = {.lanes = 1, VEC_SHARED};
