/* What the files for AMX share. Included after the target is set. */
#ifndef BACKEND_CPU_CPU_AMX_INT_H
#define BACKEND_CPU_CPU_AMX_INT_H
#include <stdbool.h>
#include "backend/cpu/cpu_half_lanes.h"
#include "backend/cpu/cpu_turn.h"

/* Of a tile: rows, and words a row. Of two tiles side by side. Values of bf16 in a row. */
enum { WIDTH = 2 * SIDE, STEP = 2 * SIDE, TILE_WORDS = SIDE * SIDE };

static inline int64_t amx_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static inline int64_t amx_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Of WIDTH values, the first `left`. */
static inline __mmask32 wide_mask(int64_t left) { return left >= WIDTH ? UINT32_MAX : (1u << left) - 1; }

/* The values of two rows side by side, as words: of the first 16 columns, of the others. */
static inline void rows_pair(__m512i a, __m512i b, __m512i *left, __m512i *right)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15),
                  even = _mm512_unpacklo_epi16(a, b), odd = _mm512_unpackhi_epi16(a, b);
    *left = _mm512_permutex2var_epi64(even, low, odd);
    *right = _mm512_permutex2var_epi64(even, high, odd);
}

/* Tiles of full size. */
static inline void tiles_begin(void)
{
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = SIDE;
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

/* 32x32 sums at c, whose rows are `line` apart, of k values of rows of a: a_line apart, a_next from STEP to STEP. */
static inline void block_sum(const uint16_t *a, int64_t a_line, int64_t a_next, const uint16_t *b, int64_t k, float *c,
                             int64_t line, bool add)
{
    const size_t step = (size_t)line * sizeof *c, a_step = (size_t)a_line * sizeof *a;
    const uint16_t *a2 = a + SIDE * a_line;
    float *c2 = c + SIDE * line;
    __asm__ volatile("" : : : "memory");                  /* tiles are loaded from what was just stored */
    if (add) {
        _tile_loadd(0, c, step);
        _tile_loadd(1, c + SIDE, step);
        _tile_loadd(2, c2, step);
        _tile_loadd(3, c2 + SIDE, step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; k; k -= STEP, a += a_next, a2 += a_next, b += 4 * TILE_WORDS) {
        _tile_loadd(4, a, a_step);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 2 * TILE_WORDS, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a2, a_step);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, step);
    _tile_stored(1, c + SIDE, step);
    _tile_stored(2, c2, step);
    _tile_stored(3, c2 + SIDE, step);
}

/* Rows [k, k_to) and columns [n, n_to) of a matrix; k and n are multiples of 32. */
struct amx_part { int64_t k, k_to, n, n_to; };
/* Packs a part on the calling thread: columns are `line` values apart. Rows that the matrix does not have are zeros, if
 * its rows are stored as rows. */
struct amx_matrix;
void amx_pack_part(const struct amx_matrix *m, const struct amx_part *t, uint16_t *to, int64_t line);

#endif
