/* Products of rows and packed weights by AMX tiles (cpu_amx_product.h).
 *
 * Blocks of 32 rows and 32 columns: 2x2 tiles of the result share what they load. Rows are loaded where they lie. A
 * part of the weights, which the second cache holds, meets a piece of rows. Long sums are taken in parts, and wait in
 * float. */
#include <string.h>
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_int.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "backend/cpu/cpu_amx_int.h"

enum { PIECE = 256, PIECE_ALONE = 512,                   /* rows; of a sum in one part */
       DEPTH = 1024, CACHED = 384 << 10 };               /* of k, and values, of the weights in the cache */

size_t amx_packed_bytes(int64_t k, int64_t n)
{
    return (size_t)(amx_up(k, STEP) * amx_up(n, WIDTH)) * sizeof(uint16_t);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Rows of b: pairs of rows become words. */
static void pairs_pack(const struct amx_matrix *m, int64_t k, int64_t n, __m512i tile[SIDE])
{
    const __mmask16 mask = lanes_left(m->n - n);
    for (int p = 0; p < SIDE; p++) {
        const float *row = m->b + (k + 2 * p) * m->k_step + n;
        const __m512 low = _mm512_maskz_loadu_ps(mask, row), high = _mm512_maskz_loadu_ps(mask, row + m->k_step);
        tile[p] = _mm512_or_si512(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low)),
                                  _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high)), 16));
    }
}

/* Columns of b: pairs follow each other. */
static void columns_pack(const struct amx_matrix *m, int64_t k, int64_t n, __m512i tile[SIDE])
{
    for (int i = 0; i < SIDE; i++) {
        const float *column = m->b + (n + i) * m->n_step + k;
        tile[i] = n + i < m->n ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(column + SIDE), _mm512_loadu_ps(column))
                               : _mm512_setzero_si512();
    }
    tile_turn(tile);
}

struct packing { const struct amx_matrix *m; uint16_t *to; };

/* Blocks of columns. */
static void blocks_pack(const void *data, int thread, int64_t from, int64_t to)
{
    const struct packing *pack = data;
    const struct amx_matrix *m = pack->m;
    for (int64_t n = from * WIDTH; n < m->n && n < to * WIDTH; n += WIDTH)
        for (int64_t k = 0; k < m->k; k += STEP)
            for (int h = 0; h < 2; h++) {
                uint16_t *tile_at = pack->to + n * m->k_all + (m->at + k) * WIDTH + h * 2 * TILE_WORDS;
                __m512i tile[SIDE];
                if (m->n_step == 1) pairs_pack(m, k, n + h * SIDE, tile);
                else columns_pack(m, k, n + h * SIDE, tile);
                for (int p = 0; p < SIDE; p++) _mm512_storeu_si512(tile_at + 2 * SIDE * p, tile[p]);
            }
}

void amx_pack(const struct amx_matrix *m, uint16_t *to)
{
    cpu_each(m->threads, (m->n + WIDTH - 1) / WIDTH, blocks_pack, &(struct packing){m, to});
}

/* ---- products -------------------------------------------------------------------------------- */

/* Up to 32 columns of sums, rounded. */
INLINE void block_store(const struct amx_product *p, int64_t m, int64_t rows, int64_t n, const float *c, int64_t line,
                        bool acc)
{
    const __mmask16 mask[2] = {lanes_left(p->n - n), lanes_left(p->n - n - SIDE)};
    __m512 bias[2];
    for (int h = 0; h < 2; h++)
        bias[h] = p->bias ? _mm512_maskz_loadu_ps(mask[h], p->bias + n + h * SIDE) : _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++) {
            uint16_t *to = p->c + (m + r) * p->c_line + n + h * SIDE;
            __m512 x = _mm512_add_ps(_mm512_load_ps(c + r * line + h * SIDE), bias[h]);
            if (acc) x = _mm512_add_ps(x, ld(to, mask[h]));
            st(to, mask[h], x);
        }
}

/* Memory of a thread: sums of a piece, and its last rows. */
static size_t sums_size(int64_t n) { return (size_t)(PIECE * amx_up(n, WIDTH)); }
static size_t thread_bytes(int64_t k, int64_t n) { return sums_size(n) * sizeof(float) + (size_t)(WIDTH * k) * 2; }
size_t amx_product_work(int64_t k, int64_t n, int threads) { return (size_t)threads * thread_bytes(k, n); }

struct product_part { const struct amx_product *p; int64_t rows, k_part, n_part; void *work; };

/* A part of the weights: rows from k on, columns [n, to). */
struct weights_part { int64_t k, n, to; };

/* The rows [m, m + rows) of 32, times a part of the weights. */
static void strip_run(const struct product_part *t, const struct weights_part *w, int64_t m, int64_t rows,
                      const uint16_t *a, int64_t a_line, float *sums)
{
    const struct amx_product *p = t->p;
    const int64_t k = w->k, depth = amx_least(t->k_part, p->k - k);
    const bool alone = depth == p->k, last = k + depth == p->k;
    _Alignas(64) float own[WIDTH * WIDTH];
    for (int64_t n = w->n; n < w->to; n += WIDTH) {
        float *c = alone ? own : sums + n;
        const int64_t line = alone ? WIDTH : amx_up(p->n, WIDTH);
        block_sum(a, a_line, STEP, p->packed + n * p->k + k * WIDTH, depth, c, line, k > 0);
        if (!last) continue;
        if (p->acc) block_store(p, m, rows, n, c, line, true);
        else block_store(p, m, rows, n, c, line, false);
    }
}

static void piece_run(const struct product_part *t, int64_t from, int64_t to, char *work)
{
    const struct amx_product *p = t->p;
    float *sums = (float *)work;
    uint16_t *tail = (uint16_t *)(sums + sums_size(p->n));
    const int64_t whole = from + (to - from) / WIDTH * WIDTH, left = to - whole;
    for (int64_t r = 0; r < WIDTH && left; r++) {
        if (r < left) memcpy(tail + r * p->k, p->a + (whole + r) * p->a_line, (size_t)p->k * sizeof *tail);
        else memset(tail + r * p->k, 0, (size_t)p->k * sizeof *tail);
    }
    const int64_t line = amx_up(p->n, WIDTH);
    struct weights_part w;
    for (w.k = 0; w.k < p->k; w.k += t->k_part)
        for (w.n = 0; w.n < p->n; w.n = w.to) {
            w.to = amx_least(p->n, w.n + t->n_part);
            for (int64_t m = from; m < whole; m += WIDTH)
                strip_run(t, &w, m, WIDTH, p->a + m * p->a_line + w.k, p->a_line, sums + (m - from) * line);
            if (left)
                strip_run(t, &w, whole, left, tail + w.k, p->k, sums + (whole - from) * line);
        }
}

static void pieces_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct product_part *t = data;
    char *work = (char *)t->work + (size_t)thread * thread_bytes(t->p->k, t->p->n);
    tiles_begin();
    for (int64_t i = from; i < to; i++)
        piece_run(t, i * t->rows, amx_least((i + 1) * t->rows, t->p->m), work);
    _tile_release();
}

void amx_product_run(const struct amx_product *p, void *work)
{
    const int64_t parts = (p->k + DEPTH - 1) / DEPTH, each = amx_up((p->m + p->threads - 1) / p->threads, WIDTH);
    struct product_part t = {.p = p, .work = work, .k_part = amx_up((p->k + parts - 1) / parts, STEP),
                             .rows = amx_least(parts > 1 ? PIECE : PIECE_ALONE, each)};
    t.n_part = CACHED / t.k_part / WIDTH * WIDTH;
    cpu_each(p->threads, (p->m + t.rows - 1) / t.rows, pieces_run, &t);
}
