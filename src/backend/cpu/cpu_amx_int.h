/* What the files for AMX share. Included after the target is set. */
#ifndef BACKEND_CPU_CPU_AMX_INT_H
#define BACKEND_CPU_CPU_AMX_INT_H
#include <immintrin.h>
#include <stdint.h>

/* Of a tile: rows, and words a row. Of two tiles side by side. Values of bf16 in a row. */
enum { SIDE = 16, WIDTH = 2 * SIDE, STEP = 2 * SIDE };

static inline int64_t amx_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static inline int64_t amx_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Transposes 16x16 words. */
static inline void tile_turn(__m512i r[SIDE])
{
    __m512i t[SIDE];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
