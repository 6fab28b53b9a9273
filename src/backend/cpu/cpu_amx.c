/* Products by AMX tiles (cpu_amx.h).
 *
 * A tile of the result, 16x16 floats, takes 32 rows at a time: pairs of rows times 16 columns of x, and the same of g
 * turned. Both are copied into that form for DEPTH times 32 rows, so few that two panels of each lie in the first
 * cache; then 2x2 tiles of the result share what they load. Called only if the processor has AMX. */
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "backend/cpu/cpu_amx.h"

enum { DEPTH = 8, SIDE = 16, TILE_WORDS = SIDE * SIDE, BLOCK_ROWS = 2 * SIDE, PANEL_WORDS = DEPTH * TILE_WORDS,
       STEP_ROWS = DEPTH * BLOCK_ROWS };

bool amx_ready(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };            /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

static size_t panels_bytes(int64_t width) { return (size_t)(width / SIDE * PANEL_WORDS) * sizeof(uint32_t); }

size_t amx_weights_work(int64_t out, int64_t in) { return panels_bytes(out) + panels_bytes(in); }

#pragma GCC target("avx512f,avx512bw,amx-tile,amx-bf16")

/* Rows and bytes a row of all eight tiles. */
static void tiles_begin(void)
{
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = SIDE;
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

/* Two rows of 32 columns as pairs, 16 columns each; a missing row is zero. */
static inline void pairs_take(const uint16_t *x, int64_t line, int64_t left, __m512i pair[2])
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __m512i a = left > 0 ? _mm512_loadu_si512(x) : _mm512_setzero_si512(),
                  b = left > 1 ? _mm512_loadu_si512(x + line) : _mm512_setzero_si512();
    const __m512i even = _mm512_unpacklo_epi16(a, b), odd = _mm512_unpackhi_epi16(a, b);
    pair[0] = _mm512_permutex2var_epi64(even, low, odd);
    pair[1] = _mm512_permutex2var_epi64(even, high, odd);
}

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

/* Two panels, of 32 columns: tiles of 32 rows each. turned: of g. */
static void panels_take(const uint16_t *x, int64_t line, int64_t rows, bool turned, uint32_t *to)
{
    for (int64_t k = 0; k * BLOCK_ROWS < rows; k++, to += TILE_WORDS) {
        __m512i tile[2][SIDE];
        for (int p = 0; p < SIDE; p++) {
            const int64_t at = k * BLOCK_ROWS + 2 * p;
            __m512i pair[2];
            pairs_take(x + at * line, line, rows - at, pair);
            tile[0][p] = pair[0];
            tile[1][p] = pair[1];
        }
        for (int i = 0; i < 2; i++) {
            if (turned) tile_turn(tile[i]);
            for (int p = 0; p < SIDE; p++) _mm512_store_si512(to + i * PANEL_WORDS + p * SIDE, tile[i][p]);
        }
    }
}

/* 32x32 of the result, from two panels of both. */
static void square_add(const uint32_t *g, const uint32_t *x, int64_t blocks, float *c, int64_t line, bool add)
{
    const size_t step = (size_t)line * sizeof *c;
    if (add) {
        _tile_loadd(0, c, step);
        _tile_loadd(1, c + SIDE, step);
        _tile_loadd(2, c + SIDE * line, step);
        _tile_loadd(3, c + SIDE * line + SIDE, step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; blocks; blocks--, g += TILE_WORDS, x += TILE_WORDS) {
        _tile_loadd(4, g, 64);
        _tile_loadd(6, x, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, x + PANEL_WORDS, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, g + PANEL_WORDS, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, step);
    _tile_stored(1, c + SIDE, step);
    _tile_stored(2, c + SIDE * line, step);
    _tile_stored(3, c + SIDE * line + SIDE, step);
}

static void rows_add(const struct amx_weights *w, int64_t from, bool add)
{
    const int64_t rows = w->rows - from < STEP_ROWS ? w->rows - from : STEP_ROWS, out = w->out / AMX_WIDTH,
                  in = w->in / AMX_WIDTH, blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    uint32_t *g = w->work, *x = (uint32_t *)((char *)w->work + panels_bytes(w->out));
    for (int64_t i = 0; i < out + in; i++) {
        const bool of_g = i < out;
        const int64_t at = of_g ? i : i - out, line = of_g ? w->out : w->in;
        panels_take((of_g ? w->g : w->x) + from * line + at * AMX_WIDTH, line, rows, of_g,
                    (of_g ? g : x) + at * 2 * PANEL_WORDS);
    }
    __asm__ volatile("" : : : "memory");                  /* tiles are loaded from what was just stored */
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++)
            square_add(g + o * 2 * PANEL_WORDS, x + i * 2 * PANEL_WORDS, blocks,
                       w->grad + o * AMX_WIDTH * w->in + i * AMX_WIDTH, w->in, add);
}

void amx_weights_run(const struct amx_weights *w)
{
    tiles_begin();
    for (int64_t from = 0; from < w->rows; from += STEP_ROWS) rows_add(w, from, w->acc || from > 0);
    _tile_release();
}
