/* Floats of 16 bits: bfloat16 and IEEE 754 binary16. Widening is exact: subnormals, infinities, NaN payloads. Narrowing
 * rounds to nearest, ties to even; NaN stays NaN; what is too large becomes infinite. Pure, any thread. */
#ifndef BASE_HALF_H
#define BASE_HALF_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bfloat16 is the upper half of a float. */
static inline float bf16_widen(uint16_t h) { return float_of_bits((uint32_t)h << 16); }
static inline uint16_t bf16_narrow(float x)
{
    uint32_t bits = float_bits(x);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static inline float f16_widen(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float x = (float)fraction * 0x1p-24f;                /* exact: a subnormal, or zero */
    return sign ? -x : x;
}
static inline uint16_t f16_narrow(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff;
    if (abs > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x3ff));
    if (abs >= 0x477ff000) return (uint16_t)(sign | 0x7c00);          /* 65520 and more round to infinity */
    if (abs < 0x38800000)                                /* below 2^-14: units of 2^-24; the sum rounds */
        return (uint16_t)(sign | (float_bits(float_of_bits(abs) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (((abs + 0xfff + (abs >> 13 & 1)) >> 13) - (112 << 10)));
}

#endif
