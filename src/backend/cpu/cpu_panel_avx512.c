/* Products of panels for AVX-512: blocks of 16 channels. Called only if the CPU has it. */
#include <immintrin.h>
#pragma GCC target("avx512f")
#define BLOCK 16
#define ROWS_TWO 12
#define ROWS_ONE 12
#define VEC_T __m512
#define VEC_LOAD _mm512_loadu_ps
#define VEC_STORE _mm512_storeu_ps
#define VEC_SET _mm512_set1_ps
#define VEC_FMA _mm512_fmadd_ps
#define VEC_ADD _mm512_add_ps
#define VEC_SUB _mm512_sub_ps
#define VEC_MUL _mm512_mul_ps
#define VEC_ZERO _mm512_setzero_ps
#include "backend/cpu/cpu_panel_impl.h"
#include "backend/cpu/cpu_wino_impl.h"
#include "backend/cpu/cpu_patch_impl.h"
#include "backend/cpu/cpu_turn.h"

static inline void rows16_turn(const float *from, int64_t line, float *to)
{
    __m512i rows[SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) rows[i] = _mm512_loadu_si512(from + i * line);
    tile_turn(rows);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * SIDE, rows[i]);
}
#define SQUARE_TURN rows16_turn
#include "backend/cpu/cpu_product_impl.h"

const struct wino_ops wino_avx512 = {pack, run, weights_run};
const struct patch_ops patch_avx512 = {patch_coarse, patch_fine, patch_weights, patch_sums};
const struct product_ops product_avx512 = PRODUCT_OPS;
