/* The loops of cpu_vec.h over bf16 with channels last, [sample][point][channel], for processors with AVX512_BF16:
 * lanes is 1, and a block is a channel. Sums are floats over at most 64 points, and doubles above that, as in the other
 * tables. A loop works on up to WIDTH channels at a time, whose sums and coefficients are in registers. */
#include <immintrin.h>
#include <string.h>
#include "backend/cpu/cpu_vec.h"

#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")

enum { LANES = 16, VECTORS = 4, WIDTH = LANES * VECTORS, CHUNK = 64 };
typedef uint16_t half;

INLINE __m512 ld(const half *p, __mmask16 m)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}
INLINE void st(half *p, __mmask16 m, __m512 x) { _mm256_mask_storeu_epi16(p, m, (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE __m512 keep(__m512 x, __mmask16 m) { return _mm512_maskz_mov_ps(m, x); }
/* NaN stays NaN. */
INLINE __m512 relu1(__m512 x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLT_UQ), x); }
INLINE __mmask16 positive(__m512 x) { return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLE_UQ); }

/* Channels [c, c + 16 v) but those that `last` lacks. */
struct part { int64_t c; int v; __mmask16 last; };
INLINE __mmask16 mask_of(const struct part *p, int v, int i) { return i == v - 1 ? p->last : (__mmask16)0xffff; }

static struct part part_at(int64_t c, int64_t end)
{
    const int64_t n = end - c < WIDTH ? end - c : WIDTH;
    const int v = (int)((n + LANES - 1) / LANES);
    return (struct part){c, v, (__mmask16)(0xffff >> (v * LANES - n))};
}

INLINE void floats_take(const struct part *p, int v, const float *from, __m512 *to)
{
    for (int i = 0; i < v; i++) to[i] = _mm512_maskz_loadu_ps(mask_of(p, v, i), from + p->c + i * LANES);
}

/* Calls F(..., V) with the number of vectors as a constant, and sets the registers of the others to nothing. */
#define BY_VECTORS(v, F, ...) \
    do { \
        if ((v) == 4) F(__VA_ARGS__, 4); \
        else if ((v) == 3) F(__VA_ARGS__, 3); \
        else if ((v) == 2) F(__VA_ARGS__, 2); \
        else F(__VA_ARGS__, 1); \
    } while (0)

/* sums[c] += x */
INLINE void fold(double *sums, __m512 x, __mmask16 m)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    const __mmask8 a = (__mmask8)m, b = (__mmask8)(m >> 8);
    _mm512_mask_storeu_pd(sums, a, _mm512_add_pd(_mm512_maskz_loadu_pd(a, sums), low));
    _mm512_mask_storeu_pd(sums + 8, b, _mm512_add_pd(_mm512_maskz_loadu_pd(b, sums + 8), high));
}

/* ---- batch norm ------------------------------------------------------------------------------ */

INLINE void moments_add(const half *x, int64_t rows, int64_t line, const struct part *p, const __m512 *shift, double *sum,
                        double *sq, int v)
{
    __m512 s[VECTORS], q[VECTORS];
    for (int i = 0; i < v; i++) s[i] = q[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; r++, x += line)
        for (int i = 0; i < v; i++) {
            const __m512 d = _mm512_sub_ps(ld(x + i * LANES, mask_of(p, v, i)), shift[i]);
            s[i] = _mm512_add_ps(s[i], d);
            q[i] = _mm512_fmadd_ps(d, d, q[i]);
        }
    for (int i = 0; i < v; i++) fold(sum + i * LANES, s[i], mask_of(p, v, i)), fold(sq + i * LANES, q[i], mask_of(p, v, i));
}

static void norm_stats(const struct vec_norm *a, double *mean, double *var)
{
    const int64_t rows = a->s.n * a->s.points, line = a->s.blocks;
    for (int64_t c = a->from; c < a->to; c += WIDTH) {
        const struct part p = part_at(c, a->to);
        const half *x = (const half *)a->x + c;
        double sum[WIDTH] = {0}, sq[WIDTH] = {0};
        __m512 shift[VECTORS];
        for (int i = 0; i < p.v; i++) shift[i] = ld(x + i * LANES, mask_of(&p, p.v, i));
        for (int64_t r = 0; r < rows; r += CHUNK)
            BY_VECTORS(p.v, moments_add, x + r * line, rows - r < CHUNK ? rows - r : CHUNK, line, &p, shift, sum, sq);
        for (int64_t i = 0; i < WIDTH && c + i < a->to; i++) {
            const double m = sum[i] / (double)rows, d = sq[i] / (double)rows - m * m;
            mean[c + i] = (double)_mm512_cvtss_f32(ld(x + i, 1)) + m;
            var[c + i] = d > 0 ? d : 0;
        }
    }
}

/* Of rows in descending order: the last ones of the first pass are still in the cache. */
INLINE void rows_forward(const struct vec_norm *a, const struct part *p, bool adds, bool relu, int v)
{
    const int64_t line = a->s.blocks, rows = a->s.n * a->s.points;
    __m512 mean[VECTORS], scale[VECTORS], beta[VECTORS];
    floats_take(p, v, a->mean, mean);
    floats_take(p, v, a->scale, scale);
    floats_take(p, v, a->beta, beta);
    for (int64_t at = (rows - 1) * line + p->c; at >= 0; at -= line)
        for (int i = 0; i < v; i++) {
            const __mmask16 m = mask_of(p, v, i);
            __m512 y = _mm512_fmadd_ps(_mm512_sub_ps(ld((const half *)a->x + at + i * LANES, m), mean[i]), scale[i],
                                       beta[i]);
            if (adds) y = _mm512_add_ps(y, ld((const half *)a->other + at + i * LANES, m));
            st((half *)a->y + at + i * LANES, m, relu ? relu1(y) : y);
        }
}

static void norm_forward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c += WIDTH) {
        const struct part p = part_at(c, a->to);
        if (a->other && a->relu) BY_VECTORS(p.v, rows_forward, a, &p, true, true);
        else if (a->other) BY_VECTORS(p.v, rows_forward, a, &p, true, false);
        else if (a->relu) BY_VECTORS(p.v, rows_forward, a, &p, false, true);
        else BY_VECTORS(p.v, rows_forward, a, &p, false, false);
    }
}

/* What a backward pass reads of a part: the coefficients; how the gradient before the ReLU is found. MASK_AGAIN
 * computes the output as rows_forward does, so the signs agree. */
struct factors { __m512 mean[VECTORS], scale[VECTORS], beta[VECTORS], c0[VECTORS], c1[VECTORS]; };

INLINE __m512 masked(const struct vec_norm *a, const struct factors *f, int64_t at, __mmask16 m, __m512 xc, int i,
                     enum vec_mask mask)
{
    const __m512 g = ld((const half *)a->gout + at, m);
    if (mask == MASK_OUT) return keep(g, positive(ld((const half *)a->out + at, m)));
    if (mask == MASK_AGAIN) return keep(g, positive(_mm512_fmadd_ps(xc, f->scale[i], f->beta[i])));
    return g;
}

INLINE void rows_reduce(const struct vec_norm *a, const struct factors *f, const struct part *p, int64_t from,
                        int64_t rows, double *sum_g, double *sum_gx, enum vec_mask mask, bool write, int v)
{
    const int64_t line = a->s.blocks;
    __m512 s[VECTORS], t[VECTORS];
    for (int i = 0; i < v; i++) s[i] = t[i] = _mm512_setzero_ps();
    for (int64_t at = from * line + p->c; rows; rows--, at += line)
        for (int i = 0; i < v; i++) {
            const __mmask16 m = mask_of(p, v, i);
            const int64_t k = at + i * LANES;
            const __m512 xc = _mm512_sub_ps(ld((const half *)a->x + k, m), f->mean[i]), g = masked(a, f, k, m, xc, i, mask);
            s[i] = _mm512_add_ps(s[i], g);
            t[i] = _mm512_fmadd_ps(g, xc, t[i]);
            half *to = (half *)a->gother + k;
            if (write) st(to, m, a->gother_acc ? _mm512_add_ps(ld(to, m), g) : g);
        }
    for (int i = 0; i < v; i++)
        fold(sum_g + i * LANES, s[i], mask_of(p, v, i)), fold(sum_gx + i * LANES, t[i], mask_of(p, v, i));
}

static void factors_take(const struct vec_norm *a, const struct part *p, struct factors *f)
{
    floats_take(p, p->v, a->mean, f->mean);
    floats_take(p, p->v, a->scale, f->scale);
    floats_take(p, p->v, a->beta, f->beta);
    if (a->c0) floats_take(p, p->v, a->c0, f->c0);
    if (a->c1) floats_take(p, p->v, a->c1, f->c1);
}

static void norm_reduce(const struct vec_norm *a)
{
    const int64_t all = a->s.n * a->s.points;
    for (int64_t c = a->from; c < a->to; c += WIDTH) {
        const struct part p = part_at(c, a->to);
        struct factors f;
        double *g = a->sum_g + c, *gx = a->sum_gx + c;
        factors_take(a, &p, &f);
        memset(g, 0, (size_t)(a->to - c < WIDTH ? a->to - c : WIDTH) * sizeof *g);
        memset(gx, 0, (size_t)(a->to - c < WIDTH ? a->to - c : WIDTH) * sizeof *gx);
        for (int64_t r = 0; r < all; r += CHUNK) {
            const int64_t n = all - r < CHUNK ? all - r : CHUNK;
            if (a->mask == MASK_AGAIN && !a->gother) BY_VECTORS(p.v, rows_reduce, a, &f, &p, r, n, g, gx, MASK_AGAIN, false);
            else if (a->mask == MASK_OUT && !a->gother) BY_VECTORS(p.v, rows_reduce, a, &f, &p, r, n, g, gx, MASK_OUT, false);
            else if (a->mask == MASK_OUT) BY_VECTORS(p.v, rows_reduce, a, &f, &p, r, n, g, gx, MASK_OUT, true);
            else BY_VECTORS(p.v, rows_reduce, a, &f, &p, r, n, g, gx, a->mask, a->gother != NULL);
        }
    }
}

INLINE void rows_backward(const struct vec_norm *a, const struct factors *f, const struct part *p, enum vec_mask mask,
                          bool acc, int v)
{
    const int64_t line = a->s.blocks, rows = a->s.n * a->s.points;
    for (int64_t at = (rows - 1) * line + p->c; at >= 0; at -= line)
        for (int i = 0; i < v; i++) {
            const __mmask16 m = mask_of(p, v, i);
            const int64_t k = at + i * LANES;
            half *to = (half *)a->gx + k;
            const __m512 xc = _mm512_sub_ps(ld((const half *)a->x + k, m), f->mean[i]), g = masked(a, f, k, m, xc, i, mask),
                         d = _mm512_fnmadd_ps(xc, f->c1[i], _mm512_fmsub_ps(f->scale[i], g, f->c0[i]));
            st(to, m, acc ? _mm512_add_ps(ld(to, m), d) : d);
        }
}

static void norm_backward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c += WIDTH) {
        const struct part p = part_at(c, a->to);
        struct factors f;
        factors_take(a, &p, &f);
        if (a->mask == MASK_AGAIN && !a->gx_acc) BY_VECTORS(p.v, rows_backward, a, &f, &p, MASK_AGAIN, false);
        else if (a->mask == MASK_NONE && !a->gx_acc) BY_VECTORS(p.v, rows_backward, a, &f, &p, MASK_NONE, false);
        else if (a->mask == MASK_OUT && !a->gx_acc) BY_VECTORS(p.v, rows_backward, a, &f, &p, MASK_OUT, false);
        else BY_VECTORS(p.v, rows_backward, a, &f, &p, a->mask, a->gx_acc);
    }
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static __mmask16 left_of(size_t n) { return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1); }

void half_add(uint16_t *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 m = left_of(n - i);
        st(y + i, m, _mm512_add_ps(ld(y + i, m), ld(x + i, m)));
    }
}

/* ---- pooling --------------------------------------------------------------------------------- */

INLINE void sums_add(const half *x, int64_t rows, int64_t line, const struct part *p, double *sum, int v)
{
    __m512 s[VECTORS];
    for (int i = 0; i < v; i++) s[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; r++, x += line)
        for (int i = 0; i < v; i++) s[i] = _mm512_add_ps(s[i], ld(x + i * LANES, mask_of(p, v, i)));
    for (int i = 0; i < v; i++) fold(sum + i * LANES, s[i], mask_of(p, v, i));
}

static void mean(const struct vec_shape *s, const float *from, float *to)
{
    half *y = (half *)to;
    for (int n = 0; n < s->n; n++)
        for (int64_t c = 0; c < s->blocks; c += WIDTH) {
            const struct part p = part_at(c, s->blocks);
            const half *x = (const half *)from + n * s->points * s->blocks + c;
            double sum[WIDTH] = {0};
            for (int64_t r = 0; r < s->points; r += CHUNK)
                BY_VECTORS(p.v, sums_add, x + r * s->blocks, s->points - r < CHUNK ? s->points - r : CHUNK, s->blocks, &p,
                           sum);
            for (int i = 0; i < p.v; i++) {
                float out[LANES];
                for (int l = 0; l < LANES; l++) out[l] = (float)(sum[i * LANES + l] / (double)s->points);
                st(y + n * s->blocks + c + i * LANES, mask_of(&p, p.v, i), _mm512_loadu_ps(out));
            }
        }
}

static void mean_backward(const struct vec_shape *s, const float *from, float *to, bool acc)
{
    const __m512 scale = _mm512_set1_ps(1.0f / (float)s->points);
    half *gx = (half *)to;
    for (int n = 0; n < s->n; n++)
        for (int64_t r = 0; r < s->points; r++, gx += s->blocks)
            for (int64_t c = 0; c < s->blocks; c += LANES) {
                const __mmask16 m = left_of((size_t)(s->blocks - c));
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
#define POOL_OUTPUTS(p, o) \
    for (int64_t o[3] = {0}; o[0] < (p)->out[0]; o[0]++) \
        for (o[1] = 0; o[1] < (p)->out[1]; o[1]++) \
            for (o[2] = 0; o[2] < (p)->out[2]; o[2]++)

static void max_pool(const struct vec_pool *p, const float *from, float *to, uint8_t *index)
{
    const int64_t line = p->channels, plane = p->in[0] * p->in[1] * p->in[2] * line;
    half *y = (half *)to;
    for (int64_t n = 0; n < p->planes; n++)
        POOL_OUTPUTS(p, o) {
            for (int64_t c = 0; c < line; c += LANES) {
                const __mmask16 m = left_of((size_t)(line - c));
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
        }
}

/* Each input of at most a few windows is the sum over those whose maximum it is, in the order of the windows. */
static void max_pool_backward(const struct vec_pool *p, const uint8_t *index, const float *from, float *to, bool acc)
{
    const int64_t line = p->channels, plane = p->in[0] * p->in[1] * p->in[2] * line;
    const half *gy = (const half *)from;
    for (int64_t n = 0; n < p->planes; n++) {
        half *gx = (half *)to + n * plane;
        if (!acc) memset(gx, 0, (size_t)plane * sizeof *gx);
        POOL_OUTPUTS(p, o) {
            for (int64_t c = 0; c < line; c += LANES) {
                const __mmask16 m = left_of((size_t)(line - c));
                const __m512 g = ld(gy + c, m);
                const __m512i which = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, index + c));
                POOL_WALK(p, o, {
                    half *place = gx + at * line + c;
                    st(place, m, _mm512_add_ps(ld(place, m), keep(g, _mm512_cmpeq_epi32_mask(which, _mm512_set1_epi32(k)))));
                })
            }
            gy += line;
            index += line;
        }
    }
}

const struct vec_ops vec_half = {
    .lanes = 1, .norm_stats = norm_stats, .norm_forward = norm_forward, .norm_reduce = norm_reduce,
    .norm_backward = norm_backward, .mean = mean, .mean_backward = mean_backward, .max_pool = max_pool,
    .max_pool_backward = max_pool_backward};
