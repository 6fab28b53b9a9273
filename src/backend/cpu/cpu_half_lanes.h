/* Vectors of 16 values in bf16. Included after the target is set. */
#ifndef BACKEND_CPU_CPU_HALF_LANES_H
#define BACKEND_CPU_CPU_HALF_LANES_H
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16 };

/* Of LANES values, the first n. */
static inline __mmask16 lanes_left(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}
/* Widens those of the mask, others are 0; rounds to nearest, ties to even. */
static inline __m512 ld(const uint16_t *p, __mmask16 m)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}
static inline void st(uint16_t *p, __mmask16 m, __m512 x)
{
    _mm256_mask_storeu_epi16(p, m, (__m256i)_mm512_cvtneps_pbh(x));
}

#endif
