/* The right sides of products by AMX tiles, packed (cpu_amx_product.h): blocks of 32 columns, in them steps of 32 rows,
 * two tiles each. A tile has 16 words a row; a word is two values of neighbouring rows. */
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_int.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "backend/cpu/cpu_amx_int.h"

size_t amx_packed_bytes(int64_t k, int64_t n)
{
    return (size_t)(amx_up(k, STEP) * amx_up(n, WIDTH)) * sizeof(uint16_t);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* 16 values at b[at], of which those of the mask are there. unit: what a code of 1 is worth. */
INLINE __m512 floats_at(enum dtype type, const void *b, int64_t at, __mmask16 mask, float unit)
{
    if (type == F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)b + at));
    if (type == F32) return _mm512_maskz_loadu_ps(mask, (const float *)b + at);
    const __m128i codes = _mm_maskz_loadu_epi8(mask, (const int8_t *)b + at);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), _mm512_set1_ps(unit));
}

/* The same, as 16 words. */
INLINE __m512i words_at(enum dtype type, const void *b, int64_t at, __mmask16 mask, float unit)
{
    if (type == BF16) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)b + at));
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(floats_at(type, b, at, mask, unit)));
}

static float unit_of(const struct amx_matrix *m, int64_t i) { return m->factor ? format_code_unit(m->factor[i]) : 0; }

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Rows of b: pairs of rows become words. */
INLINE void pairs_pack(enum dtype type, const struct amx_matrix *m, int64_t k, int64_t n, __m512i tile[SIDE])
{
    const __mmask16 mask = lanes_left(m->n - n);
#pragma GCC unroll 16
    for (int p = 0; p < SIDE; p++) {
        const int64_t row = k + 2 * p, at = row * m->k_step + n;
        const __mmask16 one = row < m->k ? mask : 0, two = row + 1 < m->k ? mask : 0;
        const __m512i low = words_at(type, m->b, at, one, one && type == I8 ? unit_of(m, row) : 0),
                      high = words_at(type, m->b, at + m->k_step, two, two && type == I8 ? unit_of(m, row + 1) : 0);
        tile[p] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
}

/* Columns of b: pairs follow each other. */
INLINE void columns_pack(enum dtype type, const struct amx_matrix *m, int64_t k, int64_t n, __m512i tile[SIDE])
{
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        const int64_t at = (n + i) * m->n_step + k;
        if (n + i >= m->n) { tile[i] = _mm512_setzero_si512(); continue; }
        if (type == BF16) { tile[i] = _mm512_loadu_si512((const uint16_t *)m->b + at); continue; }
        const float unit = type == I8 ? unit_of(m, n + i) : 0;
        tile[i] = (__m512i)_mm512_cvtne2ps_pbh(floats_at(type, m->b, at + SIDE, 0xffff, unit),
                                               floats_at(type, m->b, at, 0xffff, unit));
    }
    tile_turn(tile);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The tile of rows from k on and 16 columns from n on; `line` and `to` are those of amx_pack_part. */
INLINE uint16_t *tile_place(const struct amx_part *t, uint16_t *to, int64_t line, int64_t k, int64_t n)
{
    return to + (n - t->n) / WIDTH * WIDTH * line + (k - t->k) * WIDTH + n % WIDTH / SIDE * 2 * TILE_WORDS;
}

INLINE void tile_store(uint16_t *to, const __m512i tile[SIDE])
{
#pragma GCC unroll 16
    for (int p = 0; p < SIDE; p++) _mm512_storeu_si512(to + 2 * SIDE * p, tile[p]);
}

/* Memory is read along its rows. */
INLINE void part_pack(enum dtype type, const struct amx_matrix *m, const struct amx_part *t, uint16_t *to, int64_t line)
{
    const int64_t n_to = amx_up(t->n_to, WIDTH);
    __m512i tile[SIDE];
    if (m->n_step == 1)
        for (int64_t k = t->k; k < t->k_to; k += STEP)
            for (int64_t n = t->n; n < n_to; n += SIDE) {
                pairs_pack(type, m, k, n, tile);
                tile_store(tile_place(t, to, line, k, n), tile);
            }
    else
        for (int64_t n = t->n; n < n_to; n += SIDE)
            for (int64_t k = t->k; k < t->k_to; k += STEP) {
                columns_pack(type, m, k, n, tile);
                tile_store(tile_place(t, to, line, k, n), tile);
            }
}

void amx_pack_part(const struct amx_matrix *m, const struct amx_part *t, uint16_t *to, int64_t line)
{
    if (m->type == BF16) part_pack(BF16, m, t, to, line);
    else if (m->type == F16) part_pack(F16, m, t, to, line);
    else if (m->type == I8) part_pack(I8, m, t, to, line);
    else part_pack(F32, m, t, to, line);
}

struct packing { const struct amx_matrix *m; uint16_t *to; };

/* Blocks of columns. */
static void blocks_pack(const void *data, int thread, int64_t from, int64_t to)
{
    const struct packing *pack = data;
    const struct amx_matrix *m = pack->m;
    const struct amx_part part = {0, m->k, from * WIDTH, amx_least(to * WIDTH, m->n)};
    amx_pack_part(m, &part, pack->to + part.n * m->k_all + m->at * WIDTH, m->k_all);
}

void amx_pack(const struct amx_matrix *m, uint16_t *to)
{
    cpu_each(m->threads, (m->n + WIDTH - 1) / WIDTH, blocks_pack, &(struct packing){m, to});
}
