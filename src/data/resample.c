#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/resample.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Half width of a result element's support, in source elements. */
static double reach(int64_t from, int64_t to) { return from > to ? (double)from / (double)to : 1; }

int64_t taps_most(int64_t from, int64_t to) { return 2 * (int64_t)ceil(reach(from, to)) + 1; }

/* In the order of Pillow's operations, whose roundings decide the last bit: precompute_coeffs in Resample.c. */
struct taps taps_of(int64_t from, int64_t to, int64_t i, double *weight)
{
    double wide = reach(from, to), ss = 1 / wide, sum = 0;
    double centre = ((double)i + 0.5) * ((double)from / (double)to);
    int64_t first = (int64_t)fmax(centre - wide + 0.5, 0), end = (int64_t)fmin(centre + wide + 0.5, (double)from);
    for (int64_t k = 0; k < end - first; k++) {
        weight[k] = fmax(1 - fabs(((double)(k + first) - centre + 0.5) * ss), 0);
        sum += weight[k];
    }
    for (int64_t k = 0; k < end - first; k++) weight[k] /= sum;
    return (struct taps){first, end - first};
}

/* ---- pictures of 8 bits ------------------------------------------------------------------------------------------ */

/* Weights are multiples of 2^-22, so that a sum of 8-bit values fits into 32 bits. */
enum { BITS = 22, HALF = 1 << (BITS - 1), PIXEL = 4 };
/* Bytes of a row of the window. */
static size_t window_bytes(const struct resample_want *w) { return size_align64((size_t)w->n_columns * PIXEL); }

static size_t axis_bytes(int64_t most, int n)
{
    return size_align64((size_t)n * sizeof(struct taps)) + size_align64((size_t)(n * most) * sizeof(int32_t));
}

static char *axis_place(struct resample_axis *a, int64_t most, int n, char *at)
{
    a->most = most;
    a->taps = (struct taps *)at;
    at += size_align64((size_t)n * sizeof *a->taps);
    a->weight = (int32_t *)at;
    return at + size_align64((size_t)(n * most) * sizeof *a->weight);
}

/* n elements from `first` on. mirrored: counts both from the other end. exact: buffer for the weights of one
 * element. */
struct axis_want { int64_t from, to, first; int n; bool mirrored; };
static void axis_fill(struct resample_axis *a, const struct axis_want *x, double *exact)
{
    for (int i = 0; i < x->n; i++) {
        int32_t *w = a->weight + i * a->most;
        const int64_t at = x->first + i;
        struct taps t = taps_of(x->from, x->to, x->mirrored ? x->to - 1 - at : at, exact);
        for (int64_t k = 0; k < t.n; k++)
            w[k] = (int32_t)(0.5 + exact[x->mirrored ? t.n - 1 - k : k] * (1 << BITS));
        if (x->mirrored) t.first = x->from - t.first - t.n;
        a->taps[i] = t;
    }
}

struct picture_part resample_part(const struct resample *r)
{
    const struct taps *left = r->columns.taps, *right = left + r->want.n_columns - 1;
    const struct taps *top = r->rows.taps, *bottom = top + r->want.n_rows - 1;
    return (struct picture_part){.left = (int)left->first, .columns = (int)(right->first + right->n - left->first),
                                 .top = (int)top->first, .rows = (int)(bottom->first + bottom->n - top->first)};
}

/* Scales one row along the row, for the window's columns. */
static void across_plain(const struct resample *r, const uint8_t *row, uint8_t *out)
{
    const struct resample_axis *a = &r->columns;
    for (int i = 0; i < r->want.n_columns; i++)
        for (int c = 0; c < PIXEL; c++) {
            const uint8_t *p = row + a->taps[i].first * PIXEL + c;
            const int32_t *w = a->weight + i * a->most;
            int32_t sum = HALF;
            for (int64_t k = 0; k < a->taps[i].n; k++) sum += p[k * PIXEL] * w[k];
            *out++ = (uint8_t)(sum >> BITS < 255 ? sum >> BITS : 255);
        }
}

/* Scales along the columns to row i of the window. Lines have r->line_bytes bytes. The picture's row y is in line y
 * modulo r->rows.most. */
static void down_plain(const struct resample *r, int i, uint8_t *out)
{
    const struct resample_axis *a = &r->rows;
    const int32_t *w = a->weight + i * a->most;
    const size_t line = r->line_bytes;
    for (size_t at = 0; at < line; at++) {
        int32_t sum = HALF;
        for (int64_t k = 0, y = a->taps[i].first % a->most; k < a->taps[i].n; k++, y = y + 1 < a->most ? y + 1 : 0)
            sum += r->line[(size_t)y * line + at] * w[k];
        out[at] = (uint8_t)(sum >> BITS < 255 ? sum >> BITS : 255);
    }
}

/* The same with AVX2.
 *
 * Along a row, taps form groups of four. All columns have equally many, padded with weights of 0, so no branch depends
 * on the column. vpmaddwd adds pairs of 16-bit products, so each weight is split into its upper bits and its lower
 * SPLIT bits. The sums equal those of the whole weights. */
enum { GROUP = 4, SPLIT = 12, GROUP_WEIGHTS = 2 * GROUP * PIXEL };   /* for each byte, upper then lower parts */
static int columns_of(const struct resample_want *w) { return (w->n_columns + 3) / 4 * 4; }

static size_t groups_bytes(const struct resample_want *w, int64_t most)
{
    size_t n = (size_t)columns_of(w), groups = (size_t)(most + GROUP - 1) / GROUP;
    return size_align64(n * sizeof(int32_t)) + size_align64(n * groups * GROUP_WEIGHTS * sizeof(int16_t));
}

/* False if the part has fewer columns than a group has taps. */
static bool groups_make(struct resample *r, char *at)
{
    struct resample_groups *g = &r->groups;
    const struct resample_axis *a = &r->columns;
    const struct picture_part part = resample_part(r);
    int n = columns_of(&r->want);
    int64_t most = 0;
    for (int i = 0; i < r->want.n_columns; i++) if (a->taps[i].n > most) most = a->taps[i].n;
    g->n = (int)(most + GROUP - 1) / GROUP;
    g->first = (int32_t *)at;
    g->weight = (int16_t *)(at + size_align64((size_t)n * sizeof *g->first));
    if (part.columns < g->n * GROUP) return false;
    memset(g->weight, 0, (size_t)n * (size_t)g->n * GROUP_WEIGHTS * sizeof *g->weight);
    for (int i = 0; i < n; i++) {
        const struct taps none = {part.left, 0}, t = i < r->want.n_columns ? a->taps[i] : none;
        int64_t last = part.left + part.columns - g->n * GROUP, first = t.first < last ? t.first : last;
        g->first[i] = (int32_t)first;
        for (int64_t k = 0; k < t.n; k++) {
            int64_t tap = t.first - first + k;
            int16_t *w = g->weight + (i * g->n + tap / GROUP) * GROUP_WEIGHTS + tap % GROUP / 2 * 8 + tap % 2;
            int32_t whole = a->weight[i * a->most + k];
            for (int c = 0; c < PIXEL; c++) {
                w[2 * c] = (int16_t)(whole >> SPLIT);
                w[2 * c + GROUP * PIXEL] = (int16_t)(whole & ((1 << SPLIT) - 1));
            }
        }
    }
    return true;
}

#ifdef __x86_64__
static bool processor_is_wide(void) { return __builtin_cpu_supports("avx2"); }

/* Sums of a column, four bytes of a pixel in each half: taps 0 and 1 of each group, and taps 2 and 3. */
__attribute__((target("avx2"))) static inline __m256i column_sums(const struct resample_groups *g, int i,
                                                                  const uint8_t *row)
{
    const __m256i pairs = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                                           8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const __m128i *p = (const __m128i *)(row + g->first[i] * PIXEL);
    const __m256i *w = (const __m256i *)(g->weight + i * g->n * GROUP_WEIGHTS);
    __m256i upper = _mm256_setzero_si256(), lower = upper;
    for (int k = 0; k < g->n; k++, w += 2) {
        __m256i v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(p + k)), pairs);
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(v, _mm256_load_si256(w)));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(v, _mm256_load_si256(w + 1)));
    }
    return _mm256_add_epi32(_mm256_slli_epi32(upper, SPLIT), lower);
}

/* Two columns, rounded, one in each half. */
__attribute__((target("avx2"))) static inline __m256i two_columns(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), BITS);
}

__attribute__((target("avx2"))) static void across_wide(const struct resample *r, const uint8_t *row, uint8_t *out)
{
    const struct resample_groups *g = &r->groups;
    for (int i = 0, n = columns_of(&r->want); i < n; i += 4, out += 4 * PIXEL) {
        __m256i a = two_columns(column_sums(g, i, row), column_sums(g, i + 1, row));
        __m256i b = two_columns(column_sums(g, i + 2, row), column_sums(g, i + 3, row));
        __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_setzero_si256());
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 2, 2, 2));
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(bytes));
    }
}

/* The weights of two lines become pairs of 16-bit numbers, to match pairs of a byte of each line: first the upper bits
 * of both weights, then the lower ones. A missing last line has weight 0. */
static void pairs_make(const struct resample *r, int i)
{
    const int32_t *w = r->rows.weight + i * r->rows.most, below = (1 << SPLIT) - 1;
    int32_t *pair = r->pairs;
    for (int64_t k = 0, n = r->rows.taps[i].n; k < n; k += 2, pair += 2) {
        const int32_t next = k + 1 < n ? w[k + 1] : 0;
        pair[0] = next >> SPLIT << 16 | w[k] >> SPLIT;
        pair[1] = (next & below) << 16 | (w[k] & below);
    }
}

__attribute__((target("avx2"))) static inline __m256i rows_round(__m256i upper, __m256i lower)
{
    __m256i all = _mm256_add_epi32(_mm256_slli_epi32(upper, SPLIT), lower);
    return _mm256_srai_epi32(_mm256_add_epi32(all, _mm256_set1_epi32(HALF)), BITS);
}

__attribute__((target("avx2"))) static void down_wide(const struct resample *r, int i, uint8_t *out)
{
    const int64_t n = r->rows.taps[i].n, most = r->rows.most, from = r->rows.taps[i].first % most;
    const __m256i none = _mm256_setzero_si256();
    pairs_make(r, i);
    for (size_t at = 0; at < r->line_bytes; at += 32) {
        __m256i a = none, b = none, c = none, d = none, e = none, f = none, g = none, h = none;
        const int32_t *pair = r->pairs;
        for (int64_t k = 0, y = from; k < n; k += 2, pair += 2) {
            const int64_t z = y + 1 < most ? y + 1 : 0;
            const __m256i one = _mm256_load_si256((const __m256i *)(r->line + (size_t)y * r->line_bytes + at));
            const __m256i two = _mm256_load_si256((const __m256i *)(r->line + (size_t)z * r->line_bytes + at));
            const __m256i upper = _mm256_set1_epi32(pair[0]), lower = _mm256_set1_epi32(pair[1]);
            __m256i both = _mm256_unpacklo_epi8(one, two), v = _mm256_unpacklo_epi8(both, none);
            a = _mm256_add_epi32(a, _mm256_madd_epi16(v, upper));
            b = _mm256_add_epi32(b, _mm256_madd_epi16(v, lower));
            v = _mm256_unpackhi_epi8(both, none);
            c = _mm256_add_epi32(c, _mm256_madd_epi16(v, upper));
            d = _mm256_add_epi32(d, _mm256_madd_epi16(v, lower));
            both = _mm256_unpackhi_epi8(one, two);
            v = _mm256_unpacklo_epi8(both, none);
            e = _mm256_add_epi32(e, _mm256_madd_epi16(v, upper));
            f = _mm256_add_epi32(f, _mm256_madd_epi16(v, lower));
            v = _mm256_unpackhi_epi8(both, none);
            g = _mm256_add_epi32(g, _mm256_madd_epi16(v, upper));
            h = _mm256_add_epi32(h, _mm256_madd_epi16(v, lower));
            y = z + 1 < most ? z + 1 : 0;
        }
        __m256i low = _mm256_packus_epi32(rows_round(a, b), rows_round(c, d));
        __m256i high = _mm256_packus_epi32(rows_round(e, f), rows_round(g, h));
        _mm256_store_si256((__m256i *)(out + at), _mm256_packus_epi16(low, high));
    }
}
#else
static bool processor_is_wide(void) { return false; }
#define across_wide across_plain
#define down_wide down_plain
#endif

void resample_begin(struct resample *r, const struct resample_want *w)
{
    int64_t across = taps_most(w->width, w->to_width), down = taps_most(w->height, w->to_height);
    size_t row = window_bytes(w), line = w->down_first ? size_align64((size_t)w->width * PIXEL) : row;
    size_t exact = size_align64((size_t)(across > down ? across : down) * sizeof(double));
    size_t pairs = size_align64((size_t)(down + 1) * sizeof(int32_t));
    size_t need = axis_bytes(across, w->n_columns) + axis_bytes(down, w->n_rows) + line * (size_t)(down + 1) +
                  row * (size_t)w->n_rows + groups_bytes(w, across) + pairs + exact + 64;
    if (need > r->bytes) {
        free(r->memory);
        r->memory = mem_alloc(need);
        r->bytes = need;
    }
    char *at = (char *)size_align64((size_t)r->memory);
    double *weight = (double *)at;
    r->want = *w;
    r->n_out = 0;
    at = axis_place(&r->columns, across, w->n_columns, at + exact);
    at = axis_place(&r->rows, down, w->n_rows, at);
    const struct axis_want columns = {w->width, w->to_width, w->left, w->n_columns, w->mirror_columns};
    const struct axis_want rows = {w->height, w->to_height, w->top, w->n_rows, w->mirror_rows};
    axis_fill(&r->columns, &columns, weight);
    axis_fill(&r->rows, &rows, weight);
    r->n_in = (int)r->rows.taps[0].first;
    r->wide = groups_make(r, at) && processor_is_wide();
    r->line = (uint8_t *)at + groups_bytes(w, across);
    r->line_bytes = line;
    r->between = r->line + line * (size_t)down;
    r->window = r->between + line;
    r->pairs = (int32_t *)(r->window + row * (size_t)w->n_rows);
}

void resample_free(struct resample *r)
{
    free(r->memory);
    *r = (struct resample){0};
}

void resample_row(struct resample *r, const uint8_t *row)
{
    const bool down_first = r->want.down_first;
    int y = r->n_in++;
    uint8_t *line = r->line + (size_t)(y % r->rows.most) * r->line_bytes;
    const struct picture_part part = resample_part(r);
    const size_t left = (size_t)part.left * PIXEL;
    if (down_first) memcpy(line + left, row + left, (size_t)part.columns * PIXEL);
    else (r->wide ? across_wide : across_plain)(r, row, line);
    for (; r->n_out < r->want.n_rows; r->n_out++) {
        const struct taps *t = &r->rows.taps[r->n_out];
        uint8_t *out = r->window + (size_t)r->n_out * window_bytes(&r->want);
        if (t->first + t->n - 1 > y) return;
        (r->wide ? down_wide : down_plain)(r, r->n_out, down_first ? r->between : out);
        if (down_first) (r->wide ? across_wide : across_plain)(r, r->between, out);
    }
}

const uint8_t *resample_window(const struct resample *r, int row)
{
    return r->window + (size_t)row * window_bytes(&r->want);
}
