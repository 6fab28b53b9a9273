/* Products of panels for AVX2: blocks of 8 channels. Called only if the CPU has it. */
#include <immintrin.h>
#pragma GCC target("avx2,fma")
#define BLOCK 8
#define ROWS_TWO 6
#define ROWS_ONE 12
#define VEC_T __m256
#define VEC_LOAD _mm256_loadu_ps
#define VEC_STORE _mm256_storeu_ps
#define VEC_SET _mm256_set1_ps
#define VEC_FMA _mm256_fmadd_ps
#define VEC_ADD _mm256_add_ps
#define VEC_SUB _mm256_sub_ps
#define VEC_MUL _mm256_mul_ps
#define VEC_ZERO _mm256_setzero_ps
#include "backend/cpu/cpu_panel_impl.h"
#include "backend/cpu/cpu_wino_impl.h"
#include "backend/cpu/cpu_patch_impl.h"

static inline void rows8_turn(const float *from, int64_t line, float *to)
{
    __m256 r[BLOCK], t[BLOCK];
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; i++) r[i] = _mm256_loadu_ps(from + i * line);
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < BLOCK; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 2; i++) {
        _mm256_storeu_ps(to + i * BLOCK, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * BLOCK, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
#define SQUARE_TURN rows8_turn
#include "backend/cpu/cpu_product_impl.h"

const struct wino_ops wino_avx2 = {pack, run, weights_run};
const struct patch_ops patch_avx2 = {patch_coarse, patch_fine, patch_weights, patch_sums};
const struct product_ops product_avx2 = PRODUCT_OPS;
