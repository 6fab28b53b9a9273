/* The kernels of cpu_vec.h for one vector width. cpu_vec_avx512.c and cpu_vec_avx2.c include it, and set LANES and the
 * target. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "backend/cpu/cpu_vec.h"

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef double vd __attribute__((vector_size(4 * LANES)));  /* of half the lanes: one register, as vf */
typedef float vmem __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vhalfmem __attribute__((vector_size(2 * LANES), aligned(4), may_alias));
typedef double vdmem __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
enum { CHUNK = 64 };                                     /* points summed in float before they go to double */

INLINE vf ld(const float *p) { return *(const vmem *)p; }
INLINE void st(float *p, vf x) { *(vmem *)p = x; }
/* The lanes from LANES / 2 * half on. Compilers split vectors of two registers element by element. */
INLINE vd wide(const float *p, int half)
{
    return __builtin_convertvector(*(const vhalfmem *)(p + LANES / 2 * half), vd);
}
INLINE void fold(double *sum, vf x)
{
    float part[LANES];
    st(part, x);
    for (int i = 0; i < 2; i++) *(vdmem *)(sum + LANES / 2 * i) += wide(part, i);
}
INLINE vf keep(vf x, vi mask) { return (vf)((vi)x & mask); }
/* The hardware's prefetchers stop at the end of each page. For planes of several pages it pays to prefetch 2 KiB
 * ahead. */
INLINE int64_t ahead_of(int64_t points) { return points * LANES >= 4096 ? 512 : 0; }
INLINE void fetch(const float *p) { __builtin_prefetch(p); }
INLINE vf relu1(vf x) { return keep(x, ~(x < 0)); }      /* NaN stays NaN */

/* ---- batch norm ------------------------------------------------------------------------------ */

/* Adds sum (x - shift) and sum (x - shift)^2 of up to CHUNK points. */
INLINE void chunk_moments(const float *x, int64_t points, int64_t ahead, vf shift, double *sum, double *sq)
{
    vf s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0}, s2 = {0}, s3 = {0}, q2 = {0}, q3 = {0};
    int64_t p = 0;
    for (; p + 4 <= points; p += 4, x += 4 * LANES) {
        for (int i = 0; i < 4 * LANES; i += 16) fetch(x + ahead + i);
        vf a = ld(x) - shift, b = ld(x + LANES) - shift, c = ld(x + 2 * LANES) - shift, d = ld(x + 3 * LANES) - shift;
        s0 += a; s1 += b; s2 += c; s3 += d;
        q0 += a * a; q1 += b * b; q2 += c * c; q3 += d * d;
    }
    for (; p < points; p++, x += LANES) {
        vf a = ld(x) - shift;
        s0 += a;
        q0 += a * a;
    }
    fold(sum, (s0 + s1) + (s2 + s3));
    fold(sq, (q0 + q1) + (q2 + q3));
}

static void norm_stats(const struct vec_norm *a, double *mean, double *var)
{
    const struct vec_shape *s = &a->s;
    double count = (double)s->n * (double)s->points;
    int64_t sample = s->blocks * s->points * LANES;
    for (int64_t c = a->from; c < a->to; c++) {
        double sum[LANES] = {0}, sq[LANES] = {0};
        const float *block = a->x + c * s->points * LANES;
        vf shift = ld(block);
        for (int n = 0; n < s->n; n++)
            for (int64_t p = 0; p < s->points; p += CHUNK)
                chunk_moments(block + n * sample + p * LANES, s->points - p < CHUNK ? s->points - p : CHUNK,
                              ahead_of(s->points), shift, sum, sq);
        for (int l = 0; l < LANES; l++) {
            double m = sum[l] / count, v = sq[l] / count - m * m;
            mean[c * LANES + l] = (double)block[l] + m;
            var[c * LANES + l] = v > 0 ? v : 0;
        }
    }
}

/* One plane. other: added if `adds`. */
INLINE void plane_forward(const struct vec_norm *a, int n, int64_t c, bool adds, bool relu)
{
    int64_t points = a->s.points, ahead = ahead_of(points), at = (n * a->s.blocks + c) * points * LANES;
    const float *x = a->x + at, *other = adds ? a->other + at : NULL;
    float *y = a->y + at;
    vf mean = ld(a->mean + c * LANES), scale = ld(a->scale + c * LANES), beta = ld(a->beta + c * LANES);
    for (int64_t i = 0; i < points * LANES; i += LANES) {
        fetch(x + i + ahead);
        fetch(y + i + ahead);
        if (other) fetch(other + i + ahead);
        vf v = (ld(x + i) - mean) * scale + beta;
        if (other) v += ld(other + i);
        st(y + i, relu ? relu1(v) : v);
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

/* The gradient before the ReLU of one vector; xc = x - mean. MASK_AGAIN computes the output as plane_forward does, so
 * the signs agree. */
INLINE vf masked(vf g, vf xc, const float *out, enum vec_mask mask, vf scale, vf beta)
{
    if (mask == MASK_OUT) return keep(g, ~(ld(out) <= 0));
    if (mask == MASK_AGAIN) return keep(g, ~(xc * scale + beta <= 0));
    return g;
}

struct plane { const float *x, *out, *gout; float *gother, *gx; int64_t ahead; vf mean, scale, beta, c0, c1; };

INLINE void chunk_fetch(const struct plane *k, int64_t i, enum vec_mask mask, bool write)
{
    fetch(k->x + i);
    fetch(k->gout + i);
    if (mask == MASK_OUT) fetch(k->out + i);
    if (write) fetch(k->gother + i);
}

/* Sums of the masked gradient g and of g (x - mean). reduce: how g is made, and whether it is written or added to
 * gother. */
struct vec_sums { double g[LANES], gx[LANES]; };
struct reduce { enum vec_mask mask; bool write, acc; };

INLINE void chunk_reduce(const struct plane *k, int64_t from, int64_t to, struct reduce how, struct vec_sums *sum)
{
    const enum vec_mask mask = how.mask;
    const bool write = how.write, acc = how.acc;
    vf s0 = {0}, s1 = {0}, t0 = {0}, t1 = {0};
    int64_t i = from * LANES, end = to * LANES;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
        chunk_fetch(k, i + k->ahead, mask, write);
        chunk_fetch(k, i + k->ahead + LANES, mask, write);
        vf xa = ld(k->x + i) - k->mean, xb = ld(k->x + i + LANES) - k->mean;
        vf ga = masked(ld(k->gout + i), xa, k->out + i, mask, k->scale, k->beta);
        vf gb = masked(ld(k->gout + i + LANES), xb, k->out + i + LANES, mask, k->scale, k->beta);
        s0 += ga; s1 += gb;
        t0 += ga * xa; t1 += gb * xb;
        if (write) {
            st(k->gother + i, acc ? ld(k->gother + i) + ga : ga);
            st(k->gother + i + LANES, acc ? ld(k->gother + i + LANES) + gb : gb);
        }
    }
    if (i < end) {
        vf xa = ld(k->x + i) - k->mean, ga = masked(ld(k->gout + i), xa, k->out + i, mask, k->scale, k->beta);
        s0 += ga;
        t0 += ga * xa;
        if (write) st(k->gother + i, acc ? ld(k->gother + i) + ga : ga);
    }
    fold(sum->g, s0 + s1);
    fold(sum->gx, t0 + t1);
}

INLINE void plane_reduce(const struct plane *k, int64_t points, struct reduce how, struct vec_sums *sum)
{
    for (int64_t p = 0; p < points; p += CHUNK)
        chunk_reduce(k, p, points - p < CHUNK ? points : p + CHUNK, how, sum);
}

INLINE struct plane plane_of(const struct vec_norm *a, int n, int64_t c)
{
    int64_t at = (n * a->s.blocks + c) * a->s.points * LANES;
    return (struct plane){
        .x = a->x + at,
        .out = a->out ? a->out + at : NULL,
        .gout = a->gout + at,
        .gother = a->gother ? a->gother + at : NULL,
        .gx = a->gx ? a->gx + at : NULL,
        .ahead = ahead_of(a->s.points),
        .mean = ld(a->mean + c * LANES),
        .scale = ld(a->scale + c * LANES),
        .beta = ld(a->beta + c * LANES),
    };
}

static void norm_reduce(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++) {
        struct vec_sums sum = {0};
        for (int n = 0; n < a->s.n; n++) {
            struct plane k = plane_of(a, n, c);
            struct reduce how = {a->mask, k.gother != NULL, a->gother_acc};
            int64_t points = a->s.points;
            const struct reduce again = {MASK_AGAIN, false, false}, out = {MASK_OUT, false, false},
                                write = {MASK_OUT, true, false};
            if (how.mask == MASK_AGAIN && !how.write) plane_reduce(&k, points, again, &sum);
            else if (how.mask == MASK_OUT && !how.write) plane_reduce(&k, points, out, &sum);
            else if (how.mask == MASK_OUT && !how.acc) plane_reduce(&k, points, write, &sum);
            else plane_reduce(&k, points, how, &sum);
        }
        memcpy(a->sum_g + c * LANES, sum.g, sizeof sum.g);
        memcpy(a->sum_gx + c * LANES, sum.gx, sizeof sum.gx);
    }
}

INLINE void plane_backward(const struct plane *k, int64_t points, enum vec_mask mask, bool acc)
{
    for (int64_t i = 0; i < points * LANES; i += LANES) {
        chunk_fetch(k, i + k->ahead, mask, false);
        fetch(k->gx + i + k->ahead);
        vf xc = ld(k->x + i) - k->mean, g = masked(ld(k->gout + i), xc, k->out + i, mask, k->scale, k->beta);
        vf d = k->scale * g - k->c0 - xc * k->c1;
        st(k->gx + i, acc ? ld(k->gx + i) + d : d);
    }
}

static void norm_backward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++)
        /* backward, because the last data of the first pass is still in the cache */
        for (int n = a->s.n - 1; n >= 0; n--) {
            struct plane k = plane_of(a, n, c);
            k.c0 = ld(a->c0 + c * LANES);
            k.c1 = ld(a->c1 + c * LANES);
            if (a->mask == MASK_AGAIN && !a->gx_acc) plane_backward(&k, a->s.points, MASK_AGAIN, false);
            else if (a->mask == MASK_NONE && !a->gx_acc) plane_backward(&k, a->s.points, MASK_NONE, false);
            else if (a->mask == MASK_OUT && !a->gx_acc) plane_backward(&k, a->s.points, MASK_OUT, false);
            else plane_backward(&k, a->s.points, a->mask, a->gx_acc);
        }
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static void add(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) st(y + i, ld(y + i) + ld(x + i));
    for (; i < n; i++) y[i] += x[i];
}

static void sum(float *y, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) st(y + i, ld(a + i) + ld(b + i));
    for (; i < n; i++) y[i] = a[i] + b[i];
}

static void relu(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) st(y + i, relu1(ld(x + i)));
    for (; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(float *gx, const float *y, const float *g, size_t n, bool acc)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf d = keep(ld(g + i), ~(ld(y + i) <= 0));
        st(gx + i, acc ? ld(gx + i) + d : d);
    }
    for (; i < n; i++) gx[i] = (acc ? gx[i] : 0) + (y[i] <= 0 ? 0 : g[i]);
}

static double sumsq(const float *x, size_t n)
{
    enum { AHEAD = 512 };
    double lane[2 * LANES], total = 0;
    vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        for (int l = 0; l < 2 * LANES; l += 16) __builtin_prefetch(x + i + AHEAD + l);
        vd a = wide(x + i, 0), b = wide(x + i, 1), c = wide(x + i, 2), d = wide(x + i, 3);
        s0 += a * a; s1 += b * b; s2 += c * c; s3 += d * d;
    }
    *(vdmem *)lane = s0;
    *(vdmem *)(lane + LANES / 2) = s1;
    *(vdmem *)(lane + LANES) = s2;
    *(vdmem *)(lane + LANES / 2 * 3) = s3;
    for (; i < n; i++) lane[i % LANES] += (double)x[i] * x[i];
    for (int l = 0; l < 2 * LANES; l++) total += lane[l];
    return total;
}

/* ---- pooling --------------------------------------------------------------------------------- */

static void mean(const struct vec_shape *s, const float *x, float *y)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++, y += LANES) {
        double total[LANES] = {0};
        for (int64_t p = 0; p < s->points; p += CHUNK) {
            vf part = {0};
            for (int64_t end = s->points - p < CHUNK ? s->points : p + CHUNK, q = p; q < end; q++, x += LANES)
                part += ld(x);
            fold(total, part);
        }
        for (int l = 0; l < LANES; l++) y[l] = (float)(total[l] / (double)s->points);
    }
}

static void mean_backward(const struct vec_shape *s, const float *gy, float *gx, bool acc)
{
    vf scale = (vf){0} + 1.0f / (float)s->points;
    for (int64_t k = 0; k < s->n * s->blocks; k++, gy += LANES) {
        vf g = ld(gy) * scale;
        for (int64_t p = 0; p < s->points; p++, gx += LANES) st(gx, acc ? ld(gx) + g : g);
    }
}

typedef uint8_t vb __attribute__((vector_size(LANES)));
typedef uint8_t vbmem __attribute__((vector_size(LANES), aligned(1), may_alias));

/* Calls STEP for each element of the window at [d, h, w] that is not padding: k is its number, `at` its place. */
#define POOL_WALK(p, d, h, w, STEP) \
    for (int64_t i = 0; i < (p)->kernel[0]; i++) { \
        const int64_t q = pool_point(p, 0, d, i); \
        for (int64_t j = 0; j < (p)->kernel[1] && q >= 0; j++) { \
            const int64_t r = pool_point(p, 1, h, j); \
            for (int64_t l = 0; l < (p)->kernel[2] && r >= 0; l++) { \
                const int64_t c = pool_point(p, 2, w, l), at = ((q * (p)->in[1] + r) * (p)->in[2] + c) * LANES; \
                const int32_t k = (int32_t)((i * (p)->kernel[1] + j) * (p)->kernel[2] + l); \
                if (c >= 0) { STEP; } \
            } \
        } \
    }

INLINE void window_max(const struct vec_pool *p, const float *x, const int64_t o[3], float *y, uint8_t *index)
{
    vf best = (vf){0} - __builtin_inff();
    vi which = {0};
    bool first = true;
    POOL_WALK(p, o[0], o[1], o[2], {
        const vf v = ld(x + at);
        const vi take = first ? (vi){0} - 1 : (vi)(v > best) | (vi)(v != v);
        best = (vf)(((vi)v & take) | ((vi)best & ~take));
        which = (take & k) | (which & ~take);
        first = false;
    })
    st(y, best);
    if (index) *(vbmem *)index = __builtin_convertvector(which, vb);
}

#define POOL_OUTPUTS(p, o) \
    for (int64_t o[3] = {0}; o[0] < (p)->out[0]; o[0]++) \
        for (o[1] = 0; o[1] < (p)->out[1]; o[1]++) \
            for (o[2] = 0; o[2] < (p)->out[2]; o[2]++)

static void max_pool(const struct vec_pool *p, const float *x, float *y, uint8_t *index)
{
    for (int64_t n = 0; n < p->planes; n++, x += p->in[0] * p->in[1] * p->in[2] * LANES)
        POOL_OUTPUTS(p, o) {
            window_max(p, x, o, y, index);
            y += LANES;
            index += index ? LANES : 0;
        }
}

INLINE void window_backward(const struct vec_pool *p, const uint8_t *index, vf g, const int64_t o[3], float *gx)
{
    const vi which = __builtin_convertvector(*(const vbmem *)index, vi);
    POOL_WALK(p, o[0], o[1], o[2], st(gx + at, ld(gx + at) + keep(g, which == k)))
}

/* Plane by plane: each is zeroed and filled while it is in the cache. */
static void max_pool_backward(const struct vec_pool *p, const uint8_t *index, const float *gy, float *gx, bool acc)
{
    int64_t plane = p->in[0] * p->in[1] * p->in[2] * LANES;
    for (int64_t n = 0; n < p->planes; n++, gx += plane) {
        if (!acc) memset(gx, 0, (size_t)plane * sizeof *gx);
        POOL_OUTPUTS(p, o) {
            window_backward(p, index, ld(gy), o, gx);
            gy += LANES;
            index += LANES;
        }
    }
}

/* ---- depthwise convolution ------------------------------------------------------------------- */

/* Output points along a dimension that read the input at kernel position t, and the input point that the first of them
 * reads. */
struct reach { int64_t from, to, at; };
INLINE struct reach reach_of(const struct vec_depthwise *d, int dim, int64_t t)
{
    int64_t shift = t * d->dilation[dim] - d->padding[dim], s = d->stride[dim];
    int64_t from = shift < 0 ? (-shift + s - 1) / s : 0, to = shift < d->in[dim] ? (d->in[dim] - 1 - shift) / s + 1 : 0;
    if (to > d->out[dim]) to = d->out[dim];
    return (struct reach){from, to, from * s + shift};
}

INLINE vf plane_dot(const struct vec_depthwise *d, struct reach h, struct reach w, const float *x, const float *g)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t step = d->stride[1] * LANES, points = w.to - w.from;
    for (int64_t i = h.from; i < h.to; i++) {
        const float *xr = x + ((h.at + (i - h.from) * d->stride[0]) * d->in[1] + w.at) * LANES,
                    *gr = g + (i * d->out[1] + w.from) * LANES;
        int64_t p = 0;
        for (; p + 4 <= points; p += 4, xr += 4 * step, gr += 4 * LANES) {
            s0 += ld(xr) * ld(gr);
            s1 += ld(xr + step) * ld(gr + LANES);
            s2 += ld(xr + 2 * step) * ld(gr + 2 * LANES);
            s3 += ld(xr + 3 * step) * ld(gr + 3 * LANES);
        }
        for (; p < points; p++, xr += step, gr += LANES) s0 += ld(xr) * ld(gr);
    }
    return (s0 + s1) + (s2 + s3);
}

INLINE vf plane_sum(const float *g, int64_t points)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t p = 0;
    for (; p + 4 <= points; p += 4, g += 4 * LANES) {
        s0 += ld(g);
        s1 += ld(g + LANES);
        s2 += ld(g + 2 * LANES);
        s3 += ld(g + 3 * LANES);
    }
    for (; p < points; p++, g += LANES) s0 += ld(g);
    return (s0 + s1) + (s2 + s3);
}

static void depthwise_weights(const struct vec_depthwise *d, const float *x, const float *gy, float *grad, float *bias,
                              bool acc)
{
    int64_t in = d->in[0] * d->in[1] * LANES, out = d->out[0] * d->out[1] * LANES;
    for (int64_t b = 0; b < d->blocks; b++)
        for (int n = 0; n < d->n; n++) {
            const float *xp = x + (n * d->blocks + b) * in, *gp = gy + (n * d->blocks + b) * out;
            if (bias)
                st(bias + b * LANES,
                   acc || n > 0 ? ld(bias + b * LANES) + plane_sum(gp, out / LANES) : plane_sum(gp, out / LANES));
            for (int64_t i = 0; grad && i < d->kernel[0]; i++)
                for (int64_t j = 0; j < d->kernel[1]; j++) {
                    float *to = grad + ((b * d->kernel[0] + i) * d->kernel[1] + j) * LANES;
                    vf sum = plane_dot(d, reach_of(d, 0, i), reach_of(d, 1, j), xp, gp);
                    st(to, acc || n > 0 ? ld(to) + sum : sum);
                }
        }
}

#include "backend/cpu/cpu_vec_loops.h"

const struct vec_ops VEC_TABLE = {.lanes = LANES, VEC_SHARED, .depthwise_weights = depthwise_weights};
