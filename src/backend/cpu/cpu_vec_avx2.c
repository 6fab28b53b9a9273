/* Vector kernels for AVX2: 8 lanes. Called only if the CPU has it. */
#pragma GCC target("avx2")
#define LANES 8
#define VEC_TABLE vec_avx2
#include "backend/cpu/cpu_vec_impl.h"
