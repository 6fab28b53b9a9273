/* The loops of cpu_vec.h over bf16 with channels last, [sample][point][channel], for processors with AVX512_BF16:
 * lanes is 1, and a block is a channel. Rows are read in the order of memory, and what belongs to the channels, sums
 * and coefficients, stays in the first cache. Sums are floats over at most 64 points, and doubles above that, as in the
 * other tables. */
#include <string.h>
#include "backend/cpu/cpu_vec.h"

#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")

#include "backend/cpu/cpu_half_lanes.h"

enum { CHUNK = 64, TOGETHER = 4 };                       /* points: summed in float; read side by side */
typedef uint16_t half;

INLINE __m512 keep(__m512 x, __mmask16 m) { return _mm512_maskz_mov_ps(m, x); }
/* NaN stays NaN. */
INLINE __m512 relu1(__m512 x) { return keep(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLT_UQ)); }
INLINE __mmask16 positive(__m512 x) { return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLE_UQ); }

INLINE __m512 floats(const float *p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }

/* Runs a block for the channels [c, c + LANES) from `from` to `to`, of which those of the mask m are there. Whole
 * vectors need no masks. */
#define CHANNELS(c, from, to, ...) \
    do { \
        int64_t c = (from); \
        for (const __mmask16 m = 0xffff; c + LANES <= (to); c += LANES) __VA_ARGS__ \
        if (c < (to)) { const __mmask16 m = lanes_left((to) - c); __VA_ARGS__ } \
    } while (0);

/* to[c] += from[c], which becomes zero */
static void fold(double *to, float *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        to[c] += (double)from[c];
        from[c] = 0;
    }
}

/* ---- batch norm ------------------------------------------------------------------------------ */

/* Adds x - shift and its square of up to TOGETHER rows. */
INLINE void moments_add(const half *x, int64_t line, int64_t n, const float *shift, float *sum, float *sq, int rows)
{
    CHANNELS(c, 0, n, {
        const __m512 by = floats(shift + c, m);
        __m512 s = floats(sum + c, m), q = floats(sq + c, m);
        for (int i = 0; i < rows; i++) {
            const __m512 d = _mm512_sub_ps(ld(x + i * line + c, m), by);
            s = _mm512_add_ps(s, d);
            q = _mm512_fmadd_ps(d, d, q);
        }
        _mm512_mask_storeu_ps(sum + c, m, s);
        _mm512_mask_storeu_ps(sq + c, m, q);
    })
}

static void norm_stats(const struct vec_norm *a, double *mean, double *var)
{
    enum { WIDTH = VEC_HALF_BLOCKS };
    const int64_t rows = a->s.n * a->s.points, line = a->s.blocks, n = a->to - a->from;
    const half *x = (const half *)a->x + a->from;
    float shift[WIDTH], sum[WIDTH] = {0}, sq[WIDTH] = {0};
    double *sums = mean + a->from, *sqs = var + a->from;
    for (int64_t c = 0; c < n; c++) {
        shift[c] = _mm512_cvtss_f32(ld(x + c, 1));
        sums[c] = sqs[c] = 0;
    }
    for (int64_t r = 0; r < rows; r += TOGETHER) {
        if (r + TOGETHER <= rows) moments_add(x + r * line, line, n, shift, sum, sq, TOGETHER);
        else for (int64_t i = r; i < rows; i++) moments_add(x + i * line, line, n, shift, sum, sq, 1);
        if ((r + TOGETHER) % CHUNK && r + TOGETHER < rows) continue;
        fold(sums, sum, n);
        fold(sqs, sq, n);
    }
    for (int64_t c = 0; c < n; c++) {
        const double m = sums[c] / (double)rows, v = sqs[c] / (double)rows - m * m;
        sums[c] = (double)shift[c] + m;
        sqs[c] = v > 0 ? v : 0;
    }
}

/* In descending order: the last rows of the first pass are still in the cache. The argument is a copy, which no store
 * can change. */
INLINE void rows_forward(const struct vec_norm a, bool adds, bool relu)
{
    const int64_t line = a.s.blocks;
    for (int64_t at = (a.s.n * a.s.points - 1) * line; at >= 0; at -= line)
        CHANNELS(c, a.from, a.to, {
            __m512 y = _mm512_fmadd_ps(_mm512_sub_ps(ld((const half *)a.x + at + c, m), floats(a.mean + c, m)),
                                       floats(a.scale + c, m), floats(a.beta + c, m));
            if (adds) y = _mm512_add_ps(y, ld((const half *)a.other + at + c, m));
            st((half *)a.y + at + c, m, relu ? relu1(y) : y);
        })
}

static void norm_forward(const struct vec_norm *a)
{
    if (a->other && a->relu) rows_forward(*a, true, true);
    else if (a->other) rows_forward(*a, true, false);
    else if (a->relu) rows_forward(*a, false, true);
    else rows_forward(*a, false, false);
}

/* x - mean, and the gradient before the ReLU. MASK_AGAIN computes the output as rows_forward does, so the signs agree.
 */
struct graded { __m512 xc, g; };
INLINE struct graded graded_at(const struct vec_norm *a, int64_t at, int64_t c, __mmask16 m, enum vec_mask mask)
{
    const __m512 xc = _mm512_sub_ps(ld((const half *)a->x + at + c, m), floats(a->mean + c, m)),
                 g = ld((const half *)a->gout + at + c, m);
    if (mask == MASK_OUT) return (struct graded){xc, keep(g, positive(ld((const half *)a->out + at + c, m)))};
    if (mask == MASK_NONE) return (struct graded){xc, g};
    const __m512 y = _mm512_fmadd_ps(xc, floats(a->scale + c, m), floats(a->beta + c, m));
    return (struct graded){xc, keep(g, positive(y))};
}

INLINE void reduce_add(const struct vec_norm *a, int64_t at, float *sum_g, float *sum_gx, enum vec_mask mask,
                       bool write, int rows)
{
    CHANNELS(c, a->from, a->to, {
        __m512 s = floats(sum_g + c - a->from, m), t = floats(sum_gx + c - a->from, m);
        for (int i = 0; i < rows; i++) {
            const struct graded k = graded_at(a, at + i * a->s.blocks, c, m, mask);
            half *to = (half *)a->gother + at + i * a->s.blocks + c;
            s = _mm512_add_ps(s, k.g);
            t = _mm512_fmadd_ps(k.g, k.xc, t);
            if (write) st(to, m, a->gother_acc ? _mm512_add_ps(ld(to, m), k.g) : k.g);
        }
        _mm512_mask_storeu_ps(sum_g + c - a->from, m, s);
        _mm512_mask_storeu_ps(sum_gx + c - a->from, m, t);
    })
}

INLINE void rows_reduce(const struct vec_norm a, enum vec_mask mask, bool write)
{
    enum { WIDTH = VEC_HALF_BLOCKS };
    const int64_t all = a.s.n * a.s.points, line = a.s.blocks, n = a.to - a.from;
    float g[WIDTH] = {0}, gx[WIDTH] = {0};
    for (int64_t r = 0; r < all; r += TOGETHER) {
        if (r + TOGETHER <= all) reduce_add(&a, r * line, g, gx, mask, write, TOGETHER);
        else for (int64_t i = r; i < all; i++) reduce_add(&a, i * line, g, gx, mask, write, 1);
        if ((r + TOGETHER) % CHUNK && r + TOGETHER < all) continue;
        fold(a.sum_g + a.from, g, n);
        fold(a.sum_gx + a.from, gx, n);
    }
}

static void norm_reduce(const struct vec_norm *a)
{
    const bool write = a->gother != NULL;
    memset(a->sum_g + a->from, 0, (size_t)(a->to - a->from) * sizeof *a->sum_g);
    memset(a->sum_gx + a->from, 0, (size_t)(a->to - a->from) * sizeof *a->sum_gx);
    if (a->mask == MASK_AGAIN && !write) rows_reduce(*a, MASK_AGAIN, false);
    else if (a->mask == MASK_OUT && !write) rows_reduce(*a, MASK_OUT, false);
    else if (a->mask == MASK_OUT) rows_reduce(*a, MASK_OUT, true);
    else rows_reduce(*a, a->mask, write);
}

INLINE void rows_backward(const struct vec_norm a, enum vec_mask mask, bool acc)
{
    const int64_t line = a.s.blocks;
    for (int64_t at = (a.s.n * a.s.points - 1) * line; at >= 0; at -= line)
        CHANNELS(c, a.from, a.to, {
            const struct graded k = graded_at(&a, at, c, m, mask);
            half *to = (half *)a.gx + at + c;
            const __m512 d = _mm512_fnmadd_ps(k.xc, floats(a.c1 + c, m),
                                              _mm512_fmsub_ps(floats(a.scale + c, m), k.g, floats(a.c0 + c, m)));
            st(to, m, acc ? _mm512_add_ps(ld(to, m), d) : d);
        })
}

static void norm_backward(const struct vec_norm *a)
{
    if (a->mask == MASK_AGAIN && !a->gx_acc) rows_backward(*a, MASK_AGAIN, false);
    else if (a->mask == MASK_NONE && !a->gx_acc) rows_backward(*a, MASK_NONE, false);
    else if (a->mask == MASK_OUT && !a->gx_acc) rows_backward(*a, MASK_OUT, false);
    else rows_backward(*a, a->mask, a->gx_acc);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

void half_add(uint16_t *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = lanes_left((int64_t)(n - i));
        st(y + i, m, _mm512_add_ps(ld(y + i, m), ld(x + i, m)));
    }
}

/* ---- factors of channels --------------------------------------------------------------------- */

/* y = or += v f; BY_KEEP: 0 where f is 0; BY_SLOPE: v where x is above zero. */
enum vec_by { BY_SCALE, BY_KEEP, BY_SLOPE };
INLINE void rows_times(const struct vec_shape *s, const float *x, const float *v, const float *f, float *y,
                       enum vec_by by, bool acc)
{
    int64_t at = 0;
    for (int n = 0; n < s->n; n++, f += s->blocks)
        for (int64_t p = 0; p < s->points; p++, at += s->blocks)
            CHANNELS(c, 0, s->blocks, {
                half *to = (half *)y + at + c;
                const __m512 of = ld((const half *)v + at + c, m), factor = floats(f + c, m);
                __m512 z = _mm512_mul_ps(of, factor);
                if (by == BY_KEEP) z = keep(z, _mm512_cmp_ps_mask(factor, _mm512_setzero_ps(), _CMP_NEQ_UQ));
                if (by == BY_SLOPE)
                    z = _mm512_mask_mov_ps(
                        z, _mm512_cmp_ps_mask(ld((const half *)x + at + c, m), _mm512_setzero_ps(), _CMP_GT_OQ), of);
                st(to, m, acc ? _mm512_add_ps(ld(to, m), z) : z);
            })
}

static void scale(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc)
{
    if (acc) rows_times(s, x, x, f, y, BY_SCALE, true);
    else rows_times(s, x, x, f, y, BY_SCALE, false);
}

static void keep_some(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc)
{
    rows_times(s, x, x, f, y, BY_KEEP, acc);
}

static void prelu(const struct vec_shape *s, const float *x, const float *a, float *y)
{
    rows_times(s, x, x, a, y, BY_SLOPE, false);
}

static void prelu_backward(const struct vec_shape *s, const float *x, const float *a, const float *gy, float *gx,
                           bool acc)
{
    rows_times(s, x, gy, a, gx, BY_SLOPE, acc);
}

/* f = or += the sum over the points of g x; slopes: where x is not above zero. */
INLINE void products_sum(const struct vec_shape *s, const float *x, const float *g, float *f, bool slopes, bool acc)
{
    for (int n = 0; n < s->n; n++)
        for (int64_t c = 0; c < s->blocks; c += LANES) {
            const __mmask16 m = lanes_left(s->blocks - c);
            const int64_t first = n * s->points * s->blocks + c;
            double sum[LANES] = {0};
            float part[LANES];
            for (int64_t r = 0; r < s->points; r += CHUNK) {
                __m512 all = _mm512_setzero_ps();
                for (int64_t p = r; p < s->points && p < r + CHUNK; p++) {
                    const __m512 v = ld((const half *)x + first + p * s->blocks, m);
                    const __mmask16 take =
                        slopes ? _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NGT_UQ) : (__mmask16)0xffff;
                    all = _mm512_mask3_fmadd_ps(v, ld((const half *)g + first + p * s->blocks, m), all, take);
                }
                _mm512_storeu_ps(part, all);
                fold(sum, part, LANES);
            }
            for (int64_t l = c; l < s->blocks && l < c + LANES; l++) {
                float *to = f + n * s->blocks + l;
                *to = (acc ? *to : 0) + (float)sum[l - c];
            }
        }
}

static void dot(const struct vec_shape *s, const float *x, const float *g, float *f, bool acc)
{
    products_sum(s, x, g, f, false, acc);
}

static void prelu_slopes(const struct vec_shape *s, const float *x, const float *gy, float *ga, bool acc)
{
    products_sum(s, x, gy, ga, true, acc);
}

static void floats_narrow(uint16_t *y, const float *x, size_t n, bool acc)
{
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = lanes_left((int64_t)(n - i));
        const __m512 v = floats(x + i, m);
        st(y + i, m, acc ? _mm512_add_ps(ld(y + i, m), v) : v);
    }
}

/* ---- pooling --------------------------------------------------------------------------------- */

static void mean(const struct vec_shape *s, const float *from, float *to)
{
    for (int n = 0; n < s->n; n++)
        for (int64_t c = 0; c < s->blocks; c += LANES) {
            const __mmask16 m = lanes_left(s->blocks - c);
            const half *x = (const half *)from + n * s->points * s->blocks + c;
            double sum[LANES] = {0};
            float part[LANES];
            for (int64_t r = 0; r < s->points; r += CHUNK) {
                __m512 all = _mm512_setzero_ps();
                for (int64_t p = r; p < s->points && p < r + CHUNK; p++)
                    all = _mm512_add_ps(all, ld(x + p * s->blocks, m));
                _mm512_storeu_ps(part, all);
                fold(sum, part, LANES);
            }
            for (int l = 0; l < LANES; l++) part[l] = (float)(sum[l] / (double)s->points);
            st((half *)to + n * s->blocks + c, m, _mm512_loadu_ps(part));
        }
}

static void mean_backward(const struct vec_shape *s, const float *from, float *to, bool acc)
{
    const __m512 scale = _mm512_set1_ps(1.0f / (float)s->points);
    half *gx = (half *)to;
    for (int n = 0; n < s->n; n++)
        for (int64_t r = 0; r < s->points; r++, gx += s->blocks)
            for (int64_t c = 0; c < s->blocks; c += LANES) {
                const __mmask16 m = lanes_left(s->blocks - c);
                const __m512 g = _mm512_mul_ps(ld((const half *)from + n * s->blocks + c, m), scale);
                st(gx + c, m, acc ? _mm512_add_ps(ld(gx + c, m), g) : g);
            }
}

/* planes: samples; the channels follow. */
#define POOL_WALK(p, o, STEP) \
    for (int64_t i = 0; i < (p)->kernel[0]; i++) { \
        const int64_t q = pool_point(p, 0, (o)[0], i); \
        for (int64_t j = 0; j < (p)->kernel[1] && q >= 0; j++) { \
            const int64_t r = pool_point(p, 1, (o)[1], j); \
            for (int64_t l = 0; l < (p)->kernel[2] && r >= 0; l++) { \
                const int64_t w = pool_point(p, 2, (o)[2], l), at = (q * (p)->in[1] + r) * (p)->in[2] + w; \
                const int k = (int)((i * (p)->kernel[1] + j) * (p)->kernel[2] + l); \
                if (w >= 0) { STEP; } \
            } \
        } \
    }
#define POOL_POINTS(size, o, ...) \
    for (int64_t o[3] = {0}; o[0] < (size)[0]; o[0]++) \
        for (o[1] = 0; o[1] < (size)[1]; o[1]++) \
            for (o[2] = 0; o[2] < (size)[2]; o[2]++) __VA_ARGS__

static void max_pool(const struct vec_pool *p, const float *from, float *to, uint8_t *index)
{
    const int64_t line = p->channels, plane = p->in[0] * p->in[1] * p->in[2] * line;
    half *y = (half *)to;
    for (int64_t n = 0; n < p->planes; n++)
        POOL_POINTS(p->out, o, {
            for (int64_t c = 0; c < line; c += LANES) {
                const __mmask16 m = lanes_left(line - c);
                const half *x = (const half *)from + n * plane + c;
                __m512 best = _mm512_set1_ps(-__builtin_inff());
                __m512i which = _mm512_setzero_si512();
                bool first = true;
                POOL_WALK(p, o, {
                    const __m512 v = ld(x + at * line, m);
                    const __mmask16 take = first ? (__mmask16)0xffff : _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ) |
                                                                           _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
                    best = _mm512_mask_mov_ps(best, take, v);
                    which = _mm512_mask_set1_epi32(which, take, k);
                    first = false;
                })
                st(y + c, m, best);
                if (index) _mm_mask_storeu_epi8(index + c, m, _mm512_cvtepi32_epi8(which));
            }
            y += line;
            index += index ? line : 0;
        })
}

/* The windows of a dimension that input `at` is in. */
INLINE struct vec_span pool_windows(const struct vec_pool *p, int dim, int64_t at)
{
    const int64_t s = p->stride[dim], x = at + p->padding[dim], late = x - p->kernel[dim] + s, last = x / s + 1;
    return (struct vec_span){late < 0 ? 0 : late / s, last < p->out[dim] ? last : p->out[dim]};
}

/* A window that input q is in: elements before its first channel, and q's place in it. In ascending order. */
struct pool_tap { int64_t at; char k; };
static int pool_taps(const struct vec_pool *p, const int64_t q[3], struct pool_tap *tap)
{
    const struct vec_span a = pool_windows(p, 0, q[0]), b = pool_windows(p, 1, q[1]), c = pool_windows(p, 2, q[2]);
    int n = 0;
    for (int64_t i = a.from; i < a.to; i++)
        for (int64_t j = b.from; j < b.to; j++)
            for (int64_t l = c.from; l < c.to; l++) {
                const int64_t o[3] = {i, j, l};
                int64_t k = 0;
                for (int d = 0; d < 3; d++) k = k * p->kernel[d] + q[d] + p->padding[d] - o[d] * p->stride[d];
                tap[n++] = (struct pool_tap){((i * p->out[1] + j) * p->out[2] + l) * p->channels, (char)k};
            }
    return n;
}

/* Each input is the sum over the windows whose maximum it is, rounded once. */
static void max_pool_backward(const struct vec_pool *p, const uint8_t *index, const float *from, float *to, bool acc)
{
    const int64_t line = p->channels, outputs = p->out[0] * p->out[1] * p->out[2] * line;
    const half *gy = (const half *)from;
    half *gx = (half *)to;
    struct pool_tap tap[UINT8_MAX];                       /* a window has no more elements */
    for (int64_t n = 0; n < p->planes; n++, gy += outputs, index += outputs)
        POOL_POINTS(p->in, q, {
            const int taps = pool_taps(p, q, tap);
            CHANNELS(c, 0, line, {
                __m512 sum = acc ? ld(gx + c, m) : _mm512_setzero_ps();
                for (int t = 0; t < taps; t++) {
                    const __m128i which = _mm_maskz_loadu_epi8(m, index + tap[t].at + c);
                    const __mmask16 here = _mm_mask_cmpeq_epi8_mask(m, which, _mm_set1_epi8(tap[t].k));
                    sum = _mm512_mask_add_ps(sum, here, sum, ld(gy + tap[t].at + c, m));
                }
                st(gx + c, m, sum);
            })
            gx += line;
        })
}

const struct vec_ops vec_half = {
    .lanes = 1, .norm_stats = norm_stats, .norm_forward = norm_forward, .norm_reduce = norm_reduce,
    .norm_backward = norm_backward, .mean = mean, .mean_backward = mean_backward, .max_pool = max_pool,
    .max_pool_backward = max_pool_backward, .scale = scale, .dot = dot, .keep = keep_some, .prelu = prelu,
    .prelu_backward = prelu_backward, .prelu_slopes = prelu_slopes, .narrow = floats_narrow};
