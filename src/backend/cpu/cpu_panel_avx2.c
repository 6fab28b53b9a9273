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

const struct wino_ops wino_avx2 = {pack, run, weights_run};
const struct patch_ops patch_avx2 = {patch_coarse, patch_fine, patch_weights, patch_sums};
