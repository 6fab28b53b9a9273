/* Vector kernels for AVX-512: 16 lanes. Called only if the CPU has it. */
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define LANES 16
#define VEC_TABLE vec_avx512
#include "backend/cpu/cpu_vec_impl.h"
