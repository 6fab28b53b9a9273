/* Products of matrices in bf16 as they lie, with float results, by AMX tiles (cpu_amx_product.h).
 *
 * All of b is packed first, then 32 rows of a at a time. Squares of 32x32 values become two tiles. A tile of a has rows
 * of a; one of b has pairs of rows of b. So a matrix that is stored the other way only needs its tiles turned. */
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/onednn/dnnl_half.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "backend/cpu/cpu_amx_int.h"

enum { SQUARE = WIDTH * STEP };

/* A matrix as it is stored. */
struct stored { const uint16_t *at; int64_t rows, columns, line; };

static struct stored stored_of(const uint16_t *at, struct half_matrix m, int64_t rows, int64_t columns)
{
    return m.how == 'T' ? (struct stored){at, columns, rows, m.ld} : (struct stored){at, rows, columns, m.ld};
}

static inline __m512i row_part(const struct stored *x, int64_t row, int64_t column)
{
    if (row >= x->rows) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(wide_mask(x->columns - column), x->at + row * x->line + column);
}

/* The square at (row, column), with zeros outside of the matrix: 32 rows, or pairs of rows. */
static void square_take(const struct stored *x, int64_t row, int64_t column, bool pairs, bool turned, uint16_t *to)
{
    __m512i tile[2][SIDE];
    for (int i = 0; i < SIDE; i++) {
        if (pairs)
            rows_pair(row_part(x, row + 2 * i, column), row_part(x, row + 2 * i + 1, column), &tile[0][i], &tile[1][i]);
        else for (int h = 0; h < 2; h++) tile[h][i] = row_part(x, row + h * SIDE + i, column);
    }
    for (int h = 0; h < 2; h++) {
        if (turned) tile_turn(tile[h]);
        for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + (h * SIDE + i) * STEP, tile[h][i]);
    }
}

static void floats_copy(float *to, int64_t to_line, const float *from, int64_t from_line, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++) {
            const __mmask16 mask = lanes_left(columns - h * SIDE);
            _mm512_mask_storeu_ps(to + r * to_line + h * SIDE, mask,
                                  _mm512_maskz_loadu_ps(mask, from + r * from_line + h * SIDE));
        }
}

/* rows by columns of the result, at most 32 each. */
static void part_sum(const struct half_shape *s, const uint16_t *a, const uint16_t *b, float *c, int64_t rows,
                     int64_t columns)
{
    const int64_t k = amx_up(s->k, STEP);
    if (rows == WIDTH && columns == WIDTH) {
        block_sum(a, STEP, SQUARE, b, k, c, s->ld, s->acc);
        return;
    }
    _Alignas(64) float own[WIDTH * WIDTH];
    if (s->acc) floats_copy(own, WIDTH, c, s->ld, rows, columns);
    block_sum(a, STEP, SQUARE, b, k, own, WIDTH, s->acc);
    floats_copy(c, s->ld, own, WIDTH, rows, columns);
}

size_t amx_half_work(int64_t n, int64_t k)
{
    return (size_t)((amx_up(n, WIDTH) + WIDTH) * amx_up(k, STEP)) * sizeof(uint16_t);
}

void amx_half_run(const struct half_shape *s, const struct half_call *c)
{
    const struct stored a = stored_of(c->a, s->a, s->m, s->k), b = stored_of(c->b, s->b, s->k, s->n);
    const bool a_turned = s->a.how == 'T', b_turned = s->b.how == 'T';
    const int64_t deep = amx_up(s->k, STEP);
    uint16_t *strip = c->scratch, *packed = strip + WIDTH * deep;
    for (int64_t n = 0; n < s->n; n += WIDTH)
        for (int64_t k = 0; k < s->k; k += STEP)
            square_take(&b, b_turned ? n : k, b_turned ? k : n, !b_turned, b_turned, packed + n * deep + k * WIDTH);
    tiles_begin();
    for (int64_t m = 0; m < s->m; m += WIDTH) {
        for (int64_t k = 0; k < s->k; k += STEP)
            square_take(&a, a_turned ? k : m, a_turned ? m : k, a_turned, a_turned, strip + k * WIDTH);
        const int64_t rows = amx_least(s->m - m, WIDTH);
        for (int64_t n = 0; n < s->n; n += WIDTH)
            part_sum(s, strip, packed + n * deep, (float *)c->c + m * s->ld + n, rows, amx_least(s->n - n, WIDTH));
    }
    _tile_release();
}
