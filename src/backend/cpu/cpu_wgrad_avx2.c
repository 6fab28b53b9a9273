/* Weight gradients for AVX2: blocks of 8 channels. Called only if the CPU has it. */
#include <immintrin.h>
#pragma GCC target("avx2,fma")
#define BLOCK 8
#define WGRAD_RUN wgrad_run_avx2
#define VEC_T __m256
#define VEC_LOAD _mm256_loadu_ps
#define VEC_STORE _mm256_storeu_ps
#define VEC_SET _mm256_set1_ps
#define VEC_FMA _mm256_fmadd_ps
#define VEC_ZERO _mm256_setzero_ps
#include "backend/cpu/cpu_wgrad_impl.h"
