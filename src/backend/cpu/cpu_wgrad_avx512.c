/* Weight gradients for AVX-512: blocks of 16 channels. Called only if the CPU has it. */
#include <immintrin.h>
#pragma GCC target("avx512f")
#define BLOCK 16
#define WGRAD_RUN wgrad_run_avx512
#define VEC_T __m512
#define VEC_LOAD _mm512_loadu_ps
#define VEC_STORE _mm512_storeu_ps
#define VEC_SET _mm512_set1_ps
#define VEC_FMA _mm512_fmadd_ps
#define VEC_ZERO _mm512_setzero_ps
#include "backend/cpu/cpu_wgrad_impl.h"
