/* Loops that compilers vectorise. cpu_vec_impl.h and cpu_vec_plain.c include it, and set LANES and the target. Every
 * element has the same bits for any width. */
#pragma GCC push_options
#pragma GCC optimize("O3", "no-trapping-math")
/* under the same options; otherwise the loops would call it element by element */
#include "base/half.h"
#include "model/ops/unary.h"

/* ---- functions of one value ------------------------------------------------------------------ */

/* Loops of their own for the values 0 and 1 of a: where a rule chooses by it, a loop would compute both branches. */
#define UNARY_RULE(rule, from, said, ...) \
    INLINE void rule##_forward_by(float *restrict y, const float *restrict x, size_t n, float a) \
    { \
        for (size_t i = 0; i < n; i++) y[i] = rule##_value(x[i], a); \
    } \
    INLINE void rule##_backward_by(float *gx, const float *v, const float *gy, size_t n, float a, bool acc) \
    { \
        if (acc) for (size_t i = 0; i < n; i++) gx[i] += gy[i] * rule##_slope(v[i], a); \
        else for (size_t i = 0; i < n; i++) gx[i] = gy[i] * rule##_slope(v[i], a); \
    } \
    static void rule##_forward(float *y, const float *x, size_t n, float a) \
    { \
        if (a == 0) rule##_forward_by(y, x, n, 0); \
        else if (a == 1) rule##_forward_by(y, x, n, 1); \
        else rule##_forward_by(y, x, n, a); \
    } \
    static void rule##_backward(float *gx, const float *v, const float *gy, size_t n, float a, bool acc) \
    { \
        if (a == 0) rule##_backward_by(gx, v, gy, n, 0, acc); \
        else if (a == 1) rule##_backward_by(gx, v, gy, n, 1, acc); \
        else rule##_backward_by(gx, v, gy, n, a, acc); \
    } \
    static void rule##_gate(float *restrict y, const float *restrict x, const float *restrict u, size_t n, float a) \
    { \
        for (size_t i = 0; i < n; i++) y[i] = rule##_value(x[i], a) * u[i]; \
    } \
    static void rule##_gate_backward(const struct vec_gate *g, const float *x, const float *u, const float *gy, \
                                     size_t n, float a) \
    { \
        float *restrict gx = g->gx, *restrict gu = g->gu; \
        if (!g->acc && gx && gu) \
            for (size_t i = 0; i < n; i++) { \
                const float by = gy[i]; \
                gu[i] = by * rule##_value(x[i], a); \
                gx[i] = by * u[i] * rule##_slope(x[i], a); \
            } \
        else \
            for (size_t i = 0; i < n; i++) { \
                if (gu) gu[i] = (g->acc & 2 ? gu[i] : 0) + gy[i] * rule##_value(x[i], a); \
                if (gx) gx[i] = (g->acc & 1 ? gx[i] : 0) + gy[i] * u[i] * rule##_slope(x[i], a); \
            } \
    }
#define UNARY_FILES
#include "registry.inc"

static const struct vec_unary unary_loops[N_UNARIES] = {
#define UNARY(x) [UNARY_##x] = {x##_forward, x##_backward, x##_gate, x##_gate_backward},
#include "registry.inc"
};

/* ---- bf16 ------------------------------------------------------------------------------------ */

static void bf16_to_floats(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = bf16_widen(x[i]);
}

static void floats_to_bf16(uint16_t *restrict y, const float *restrict x, size_t n, bool acc)
{
    if (acc) for (size_t i = 0; i < n; i++) y[i] = bf16_narrow(bf16_widen(y[i]) + x[i]);
    else for (size_t i = 0; i < n; i++) y[i] = bf16_narrow(x[i]);
}

static void sum_rows(const uint16_t *x, int64_t line, int64_t rows, int64_t columns, float *sums, bool acc)
{
    enum { WIDTH = 64, ROWS = 64 };
    for (int64_t from = 0; from < columns; from += WIDTH) {
        const int64_t n = columns - from < WIDTH ? columns - from : WIDTH;
        double all[WIDTH] = {0};
        for (int64_t r = 0; r < rows; r += ROWS) {
            float part[WIDTH] = {0};
            for (int64_t i = r; i < rows && i < r + ROWS; i++)
                for (int64_t k = 0; k < n; k++) part[k] += bf16_widen(x[i * line + from + k]);
            for (int64_t k = 0; k < n; k++) all[k] += part[k];
        }
        for (int64_t k = 0; k < n; k++) sums[from + k] = (acc ? sums[from + k] : 0) + (float)all[k];
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* y may be a or b. */
static void multiply(float *y, const float *a, const float *b, size_t n, bool acc)
{
    if (acc) for (size_t i = 0; i < n; i++) y[i] += a[i] * b[i];
    else for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void scale(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++, x += s->points * LANES, y += s->points * LANES) {
        float by[LANES];
        for (int l = 0; l < LANES; l++) by[l] = *f++;
        for (int64_t i = 0; i < s->points * LANES; i += LANES)
            for (int l = 0; l < LANES; l++) y[i + l] = (acc ? y[i + l] : 0) + x[i + l] * by[l];
    }
}

static void dot(const struct vec_shape *s, const float *x, const float *g, float *f, bool acc)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++, f += LANES) {
        double sum[LANES] = {0};
        for (int64_t p = 0; p < s->points; p++, x += LANES, g += LANES)
            for (int l = 0; l < LANES; l++) sum[l] += (double)g[l] * x[l];
        for (int l = 0; l < LANES; l++) f[l] = (acc ? f[l] : 0) + (float)sum[l];
    }
}

static void keep_some(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++, x += s->points * LANES, y += s->points * LANES) {
        float by[LANES];
        for (int l = 0; l < LANES; l++) by[l] = *f++;
        for (int64_t i = 0; i < s->points * LANES; i += LANES)
            for (int l = 0; l < LANES; l++) {
                const float v = by[l] == 0 ? 0 : x[i + l] * by[l];
                y[i + l] = (acc ? y[i + l] : 0) + v;
            }
    }
}

/* ---- learned slopes -------------------------------------------------------------------------- */

static void prelu(const struct vec_shape *s, const float *x, const float *a, float *y)
{
    for (int64_t k = 0; k < s->blocks; k++, x += s->points * LANES, y += s->points * LANES) {
        float by[LANES];
        for (int l = 0; l < LANES; l++) by[l] = *a++;
        for (int64_t i = 0; i < s->points * LANES; i += LANES)
            for (int l = 0; l < LANES; l++) y[i + l] = x[i + l] > 0 ? x[i + l] : by[l] * x[i + l];
    }
}

static void prelu_backward(const struct vec_shape *s, const float *x, const float *a, const float *gy, float *gx,
                           bool acc)
{
    const int64_t plane = s->points * LANES;
    for (int64_t k = 0; k < s->blocks; k++, x += plane, gy += plane, gx += plane) {
        float by[LANES];
        for (int l = 0; l < LANES; l++) by[l] = *a++;
        for (int64_t i = 0; i < plane; i += LANES)
            for (int l = 0; l < LANES; l++) {
                const float v = x[i + l] > 0 ? gy[i + l] : by[l] * gy[i + l];
                gx[i + l] = (acc ? gx[i + l] : 0) + v;
            }
    }
}

static void prelu_slopes(const struct vec_shape *s, const float *x, const float *gy, float *ga, bool acc)
{
    for (int64_t k = 0; k < s->blocks; k++, ga += LANES) {
        double sum[LANES] = {0};
        for (int64_t p = 0; p < s->points; p++, x += LANES, gy += LANES)
            for (int l = 0; l < LANES; l++) sum[l] += x[l] > 0 ? 0 : (double)gy[l] * x[l];
        for (int l = 0; l < LANES; l++) ga[l] = (acc ? ga[l] : 0) + (float)sum[l];
    }
}

/* ---- softmax of rows ------------------------------------------------------------------------- */

/* Parallel sums, independent of the vector width; each is in float over RUN elements. */
enum { SIDES = 16, RUN = 64 * SIDES };

static float row_most(const float *x, int64_t n)
{
    enum { MANY = 4 * SIDES };                           /* hide the latency of a comparison */
    float most[MANY];
    for (int l = 0; l < MANY; l++) most[l] = x[0];
    int64_t i = 0;
    for (; i + MANY <= n; i += MANY)
        for (int l = 0; l < MANY; l++) most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
    for (int l = 0; i < n; i++, l++) most[l] = x[i] > most[l] ? x[i] : most[l];
    for (int l = 1; l < MANY; l++) most[0] = most[l] > most[0] ? most[l] : most[0];
    return most[0];
}

/* The sum of x, or of x y if y is given. */
INLINE double row_sum(const float *x, const float *y, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n;) {
        float sum[SIDES] = {0};
        const int64_t to = n - i < RUN ? n : i + RUN;
        for (; i + SIDES <= to; i += SIDES)
            for (int l = 0; l < SIDES; l++) sum[l] += y ? x[i + l] * y[i + l] : x[i + l];
        for (int l = 0; i < to; i++, l++) sum[l] += y ? x[i] * y[i] : x[i];
        for (int l = 0; l < SIDES; l++) all += sum[l];
    }
    return all;
}

static void row_exp(float *x, int64_t n, float scale, float less)
{
    for (int64_t i = 0; i < n; i++) x[i] = unary_exp(scale * x[i] - less);
}

/* The score itself, in double. */
static double score_of(const struct vec_scores *s, int64_t r, int64_t i)
{
    double sum = 0;
    const float *q = s->q + r * s->apart_q.vector, *key = s->key + i * s->apart_key.vector;
    for (int64_t w = 0; w < s->width; w++)
        sum += (double)q[w * s->apart_q.element] * key[w * s->apart_key.element];
    return s->scale * sum;
}

INLINE int64_t line_of_scores(const struct vec_scores *s) { return s->line ? s->line : s->n; }

/* The columns that row r sees; x is zero elsewhere. */
INLINE struct vec_span row_span(const struct vec_scores *s, int64_t r, float *x)
{
    if (!s->span) return (struct vec_span){0, s->n};
    const struct vec_span seen = s->span[r];
    memset(x, 0, (size_t)seen.from * sizeof *x);
    memset(x + seen.to, 0, (size_t)(s->n - seen.to) * sizeof *x);
    return seen;
}

/* x = e^(score - most) of row r, columns from `at.from`. A large score in float has lost the digits that matter after
 * the difference. So scores with weight are computed again in double, and so is the largest, whose x is then 1. Rows
 * of usual scores skip this. */
static void scores_exp(const struct vec_scores *s, int64_t r, struct vec_span at, float *x, float most)
{
    const float large = 32, counts = 0x1p-12f;
    const int64_t n = at.to - at.from;
    double top = -INFINITY;
    row_exp(x, n, s->scale, most);
    if (!s->q || !(fabsf(most) > large)) return;
    for (int64_t i = 0; i < n; i++) if (x[i] > counts) top = fmax(top, score_of(s, r, at.from + i));
    for (int64_t i = 0; i < n; i++) if (x[i] > counts) x[i] = (float)exp(score_of(s, r, at.from + i) - top);
}

static void softmax(const struct vec_scores *s, float *x, float *kept)
{
    for (int64_t r = 0; r < s->rows; r++, x += line_of_scores(s)) {
        const struct vec_span at = row_span(s, r, x);
        float *seen = x + at.from;
        const int64_t n = at.to - at.from;
        const float most = s->scale * row_most(seen, n);
        scores_exp(s, r, at, seen, most);
        const double sum = row_sum(seen, NULL, n);
        const float by = (float)(1 / sum);
        for (int64_t i = 0; i < n; i++) seen[i] *= by;
        kept[2 * r] = most;
        kept[2 * r + 1] = by;
    }
}

static void softmax_again(const struct vec_scores *s, float *x, const float *kept)
{
    for (int64_t r = 0; r < s->rows; r++, x += line_of_scores(s)) {
        const struct vec_span at = row_span(s, r, x);
        scores_exp(s, r, at, x + at.from, kept[2 * r]);
        for (int64_t i = at.from; i < at.to; i++) x[i] *= kept[2 * r + 1];
    }
}

static void softmax_backward(const struct vec_scores *s, const float *p, float *g)
{
    for (int64_t r = 0; r < s->rows; r++, p += line_of_scores(s), g += line_of_scores(s)) {
        const float mean = (float)row_sum(g, p, s->n);
        for (int64_t i = 0; i < s->n; i++) g[i] = s->scale * (p[i] * (g[i] - mean));
    }
}

/* ---- rows of channels ------------------------------------------------------------------------ */

/* The sum of (x - mean)^2. */
INLINE double row_squares(const float *x, float mean, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n;) {
        float sum[SIDES] = {0};
        const int64_t to = n - i < RUN ? n : i + RUN;
        for (; i + SIDES <= to; i += SIDES)
            for (int l = 0; l < SIDES; l++) sum[l] += (x[i + l] - mean) * (x[i + l] - mean);
        for (int l = 0; i < to; i++, l++) sum[l] += (x[i] - mean) * (x[i] - mean);
        for (int l = 0; l < SIDES; l++) all += sum[l];
    }
    return all;
}

static void row_norm(struct vec_row *r, double eps)
{
    const float *restrict x = r->x, *restrict w = r->w, *restrict b = r->b;
    float *restrict y = r->y;
    r->mean = r->centred ? (float)(row_sum(x, NULL, r->n) / (double)r->n) : 0;
    const float mean = r->mean, inv = r->inv = (float)(1 / sqrt(row_squares(x, mean, r->n) / (double)r->n + eps));
    if (b) for (int64_t i = 0; i < r->n; i++) y[i] = (x[i] - mean) * inv * w[i] + b[i];
    else for (int64_t i = 0; i < r->n; i++) y[i] = x[i] * inv * w[i];
}

/* A vector of SIDES elements of a row; compilers make bad code of these two sums in arrays. */
typedef float vside __attribute__((vector_size(4 * SIDES), aligned(4), may_alias));
#define side(x) (*(const vside *)(x))                     /* no function: its result would be none of AVX2 */

static void row_norm_backward(const struct vec_row *r)
{
    const float *x = r->x, *w = r->w, *gy = r->gy, mean = r->mean, inv = r->inv;
    float *gx = r->gx;
    double all = 0, dot = 0;
    int64_t i = 0;
    while (i < r->n) {
        vside sum = {0}, by = {0};
        const int64_t to = r->n - i < RUN ? r->n : i + RUN;
        for (; i + SIDES <= to; i += SIDES) {
            const vside g = side(gy + i) * side(w + i);
            sum += g;
            by += g * ((side(x + i) - mean) * inv);
        }
        for (int l = 0; i < to; i++, l++) {
            sum[l] += gy[i] * w[i];
            by[l] += gy[i] * w[i] * ((x[i] - mean) * inv);
        }
        for (int l = 0; l < SIDES; l++) all += sum[l], dot += by[l];
    }
    const float less = r->centred ? (float)(all / (double)r->n) : 0, times = (float)(dot / (double)r->n);
    for (i = 0; i + SIDES <= r->n; i += SIDES) {
        vside g = inv * (side(gy + i) * side(w + i) - less - (side(x + i) - mean) * inv * times);
        if (r->acc) g += side(gx + i);
        *(vside *)(gx + i) = g;
    }
    for (; i < r->n; i++) {
        const float g = inv * (gy[i] * w[i] - less - (x[i] - mean) * inv * times);
        gx[i] = r->acc ? gx[i] + g : g;
    }
}

static void row_norm_weights(const struct vec_row *r, double *gw, double *gb)
{
    const float *restrict x = r->x, *restrict gy = r->gy;
    const float mean = r->mean, inv = r->inv;
    for (int64_t i = 0; i < r->n; i++) gw[i] += (double)gy[i] * ((x[i] - mean) * inv);
    for (int64_t i = 0; gb && i < r->n; i++) gb[i] += gy[i];
}

static void row_turn(int64_t n, const float *restrict c, const float *restrict s, const float *restrict x1,
                     const float *restrict x2, float *restrict y1, float *restrict y2, bool acc)
{
    if (!acc)
        for (int64_t i = 0; i < n; i++) {
            y1[i] = x1[i] * c[i] - x2[i] * s[i];
            y2[i] = x2[i] * c[i] + x1[i] * s[i];
        }
    else
        for (int64_t i = 0; i < n; i++) {
            y1[i] += x1[i] * c[i] - x2[i] * s[i];
            y2[i] += x2[i] * c[i] + x1[i] * s[i];
        }
}

static double row_exp_sum(float *x, int64_t n, float kept[2])
{
    kept[0] = row_most(x, n);
    row_exp(x, n, 1, kept[0]);
    const double sum = row_sum(x, NULL, n);
    kept[1] = (float)(1 / sum);
    return log(sum);
}

static void row_times(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

/* Partial sums of a dot product: element i belongs to number i % DOT_SUMS. */
enum { DOT_SUMS = 16, DOT_ROWS = 4 };

INLINE float dot_total(const float *sum)
{
    float by[DOT_SUMS / 2];
    for (int l = 0; l < 8; l++) by[l] = sum[l] + sum[l + 8];
    for (int l = 0; l < 4; l++) by[l] += by[l + 4];
    return (by[0] + by[2]) + (by[1] + by[3]);
}

INLINE void dot_rows(int64_t n, const float *w, const float *x, int64_t line, int rows, float y[DOT_ROWS])
{
    float sum[DOT_ROWS][DOT_SUMS] = {0};
    int64_t i = 0;
    for (; i + DOT_SUMS <= n; i += DOT_SUMS)
        for (int r = 0; r < rows; r++)
            for (int l = 0; l < DOT_SUMS; l++) sum[r][l] += w[i + l] * x[r * line + i + l];
    for (; i < n; i++)
        for (int r = 0; r < rows; r++) sum[r][i % DOT_SUMS] += w[i] * x[r * line + i];
    for (int r = 0; r < rows; r++) y[r] = dot_total(sum[r]);
}

/* n weights from their stored form: what format_widen gives. */
INLINE void few_widen(enum vec_stored type, const void *w, int64_t at, int64_t n, float unit, float *to)
{
    if (type == VEC_I8) for (int64_t i = 0; i < n; i++) to[i] = (float)((const int8_t *)w)[at + i] * unit;
    else for (int64_t i = 0; i < n; i++) to[i] = bf16_widen(((const uint16_t *)w)[at + i]);
}

/* A vector of them. Compilers of 2022 make single values of such conversions. */
#if LANES > 1
INLINE vf few_load(enum vec_stored type, const void *w, int64_t at, float unit)
{
    const void *code = (const int8_t *)w + at, *half = (const uint16_t *)w + at;
#if LANES == 16
    if (type == VEC_BF16) return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(half)), 16);
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(code))) * unit;
#else
    if (type == VEC_BF16) return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(half)), 16);
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(code))) * unit;
#endif
}
#else
typedef float vf;
INLINE vf ld(const float *p) { return *p; }
INLINE void st(float *p, vf x) { *p = x; }
INLINE vf few_load(enum vec_stored type, const void *w, int64_t at, float unit)
{
    float x;
    few_widen(type, w, at, 1, unit, &x);
    return x;
}
#endif

static void codes_to_floats(float *y, const int8_t *q, size_t n, float unit)
{
    size_t i = 0;
#if LANES > 1
    for (; i + LANES <= n; i += LANES) st(y + i, few_load(VEC_I8, q, (int64_t)i, unit));
#endif
    for (; i < n; i++) y[i] = (float)q[i] * unit;
}

/* The sums of dot_rows, of stored weights, which are widened on the way. */
INLINE void dot_stored(enum vec_stored type, int64_t n, const void *w, int64_t at, float unit, const float *x,
                       int64_t line, int rows, float y[DOT_ROWS])
{
    enum { PARTS = DOT_SUMS / LANES };
    vf sum[DOT_ROWS][PARTS];
    float all[DOT_SUMS], wide[DOT_SUMS];
    int64_t i = 0;
    memset(sum, 0, sizeof sum);
    for (; i + DOT_SUMS <= n; i += DOT_SUMS)
        for (int p = 0; p < PARTS; p++) {
            const vf v = few_load(type, w, at + i + p * LANES, unit);
            for (int r = 0; r < rows; r++) sum[r][p] += v * ld(x + r * line + i + p * LANES);
        }
    few_widen(type, w, at + i, n - i, unit, wide);
    for (int r = 0; r < rows; r++) {
        for (int p = 0; p < PARTS; p++) st(all + p * LANES, sum[r][p]);
        for (int64_t l = 0; i + l < n; l++) all[l] += wide[l] * x[r * line + i + l];
        y[r] = dot_total(all);
    }
}

/* A weight comes from memory once; rows are taken four at a time, while it is in the cache. */
INLINE void few_of(enum vec_stored type, const struct vec_few *m, const float *x, const void *w, const float *bias,
                   float *y)
{
    for (int64_t o = 0; o < m->out; o++) {
        const float unit = type == VEC_I8 ? m->factor[o] / 127 : 1;
        for (int64_t r = 0; r < m->rows; r += DOT_ROWS) {
            float sum[DOT_ROWS];
            const int some = m->rows - r < DOT_ROWS ? (int)(m->rows - r) : DOT_ROWS;
            for (int k = 0, step = some == DOT_ROWS ? DOT_ROWS : 1; k < some; k += step) {
                const float *from = x + (r + k) * m->in;
                const float *wide = (const float *)w + o * m->in;
                if (type == VEC_F32 && step > 1) dot_rows(m->in, wide, from, m->in, DOT_ROWS, sum);
                else if (type == VEC_F32) dot_rows(m->in, wide, from, m->in, 1, sum + k);
                else if (step > 1) dot_stored(type, m->in, w, o * m->in, unit, from, m->in, DOT_ROWS, sum);
                else dot_stored(type, m->in, w, o * m->in, unit, from, m->in, 1, sum + k);
            }
            for (int k = 0; k < some; k++) y[(r + k) * m->out + o] = sum[k] + (bias ? bias[o] : 0);
        }
    }
}

static void few_rows(const struct vec_few *m, const float *x, const void *w, const float *bias, float *y)
{
    if (m->type == VEC_I8) few_of(VEC_I8, m, x, w, bias, y);
    else if (m->type == VEC_BF16) few_of(VEC_BF16, m, x, w, bias, y);
    else few_of(VEC_F32, m, x, w, bias, y);
}

static void row_scores(const struct vec_entries *m, const float *q, float by, float *y)
{
    for (int64_t j = 0; j < m->n; j++) {
        dot_rows(m->width, m->x + j * m->line, q, 0, 1, y + j);
        y[j] *= by;
    }
}

/* Some channels at a time, whose sums stay in registers. */
static void row_mix(const struct vec_entries *m, const float *p, float by, float *y)
{
    for (int64_t w = 0; w < m->width; w += DOT_SUMS) {
        float sum[DOT_SUMS] = {0};
        const int some = m->width - w < DOT_SUMS ? (int)(m->width - w) : DOT_SUMS;
        if (some == DOT_SUMS)
            for (int64_t j = 0; j < m->n; j++)
                for (int l = 0; l < DOT_SUMS; l++) sum[l] += p[j] * m->x[j * m->line + w + l];
        else
            for (int64_t j = 0; j < m->n; j++)
                for (int l = 0; l < some; l++) sum[l] += p[j] * m->x[j * m->line + w + l];
        for (int l = 0; l < some; l++) y[w + l] = sum[l] * by;
    }
}

/* ---- means over windows ---------------------------------------------------------------------- */

struct vec_box { struct vec_span s[3]; double size; };

INLINE struct vec_box box_of(const struct vec_windows *w, int64_t i, int64_t j, int64_t k)
{
    struct vec_box b = {{w->span[0][i], w->span[1][j], w->span[2][k]}, w->divide};
    if (w->divide == 0)
        b.size = (double)((b.s[0].to - b.s[0].from) * (b.s[1].to - b.s[1].from) * (b.s[2].to - b.s[2].from));
    return b;
}

/* Calls STEP with `at`, the place in a plane of each of the box's elements. */
#define BOX_WALK(w, b, STEP) \
    for (int64_t q = (b).s[0].from; q < (b).s[0].to; q++) \
        for (int64_t r = (b).s[1].from; r < (b).s[1].to; r++) \
            for (int64_t t = (b).s[2].from; t < (b).s[2].to; t++) { \
                const int64_t at = ((q * (w)->in[1] + r) * (w)->in[2] + t) * LANES; \
                STEP; \
            }
#define OUTPUTS_WALK(w) \
    for (int64_t i = 0; i < (w)->out[0]; i++) \
        for (int64_t j = 0; j < (w)->out[1]; j++) \
            for (int64_t k = 0; k < (w)->out[2]; k++)

static void avg_pool(const struct vec_windows *w, const float *x, float *y)
{
    const int64_t plane = w->in[0] * w->in[1] * w->in[2] * LANES;
    for (int64_t p = 0; p < w->planes; p++, x += plane)
        OUTPUTS_WALK(w) {
            const struct vec_box b = box_of(w, i, j, k);
            double sum[LANES] = {0};
            BOX_WALK(w, b, for (int l = 0; l < LANES; l++) sum[l] += x[at + l])
            for (int l = 0; l < LANES; l++) *y++ = (float)(sum[l] / b.size);
        }
}

static void avg_pool_backward(const struct vec_windows *w, const float *gy, float *gx, bool acc)
{
    const int64_t plane = w->in[0] * w->in[1] * w->in[2] * LANES;
    for (int64_t p = 0; p < w->planes; p++, gx += plane) {
        if (!acc) memset(gx, 0, (size_t)plane * sizeof *gx);
        OUTPUTS_WALK(w) {
            const struct vec_box b = box_of(w, i, j, k);
            float g[LANES];
            for (int l = 0; l < LANES; l++) g[l] = (float)(*gy++ / b.size);
            BOX_WALK(w, b, for (int l = 0; l < LANES; l++) gx[at + l] += g[l])
        }
    }
}

#pragma GCC pop_options
