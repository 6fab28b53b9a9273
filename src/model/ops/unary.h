/* Building blocks for functions of one value, in C and CUDA. For unary_NAME.h, and for the loops over elements: unary.c
 * (the operators and their reference kernels), the onednn backend's vector loops, kernels/unary.cu for GPUs.
 *
 * Such an operator is one file, unary_NAME.h, and an entry in UNARIES. The file defines, both UNARY_FN,
 *
 *   float NAME_value(float x, float a)     the function; a: the operator's attribute, if any
 *   float NAME_slope(float v, float a)     its derivative; v: the input or output that backward reads
 *
 * and ends with UNARY_RULE(NAME, UNARY_FROM_INPUT or UNARY_FROM_OUTPUT, text, {attribute}): the attribute as struct
 * attr_kind, or {NULL}. Both are plain arithmetic on floats without loops, library calls and, if possible, branches. So
 * compilers vectorise them, and an element's bits do not depend on its position. A NaN stays a NaN. */
#ifndef OPS_UNARY_H
#define OPS_UNARY_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define UNARY_FN static inline __host__ __device__
#else
#define UNARY_FN static inline
#endif

/* op_kind.unary: the index in UNARIES. */
enum unary {
#define UNARY(x) UNARY_##x,
#include "registry.inc"
    N_UNARIES
};

enum unary_from { UNARY_FROM_INPUT, UNARY_FROM_OUTPUT };

/* 2^n, n = -126 to 127. */
UNARY_FN float unary_power(int32_t n)
{
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x within two roundings; from -87 down it is 1.6e-38, from 88 up 1.7e38. x = k ln 2 + r (Cody and Waite 1980: ln 2
 * in two parts, so that r is exact), a polynomial fitted to e^r on |r| <= 0.3475 to 2e-9. */
UNARY_FN float unary_exp(float x)
{
    const float round = 12582912.0f;                     /* 1.5 2^23: sums with it are integers */
    float v = x > 88.0f ? 88.0f : x, k;
    uint32_t bits;
    v = v < -87.0f ? -87.0f : v;
    k = v * 1.44269504f + round;
    memcpy(&bits, &k, sizeof bits);
    k -= round;
    const float r = (v - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 0.0013956412f;
    p = p * r + 0.0083753528f;
    p = p * r + 0.0416660774f;
    p = p * r + 0.166664128f;
    p = p * r + 0.500000017f;
    p = p * r + 1.00000004f;
    p = p * r + 1.0f;
    return p * unary_power((int32_t)(bits - 0x4b400000u));
}

UNARY_FN float unary_sigmoid(float x) { return 1.0f / (1.0f + unary_exp(-x)); }

/* Near zero a polynomial in x^2, fitted on x^2 <= 1/2 to 1.4e-8; else 1 - 2 / (e^2x + 1). */
UNARY_FN float unary_tanh(float x)
{
    const float s = x * x;
    float p = -0.00505227974f;
    p = p * s + 0.0199865224f;
    p = p * s - 0.053512478f;
    p = p * s + 0.133282269f;
    p = p * s - 0.33333122f;
    const float near = x + x * s * p, far = 1.0f - 2.0f / (unary_exp(2.0f * x) + 1.0f);
    return s <= 0.5f ? near : far;
}

/* The error function: for |x| <= 1 a polynomial in x^2, fitted to 1.2e-9; beyond, 1 - e^-q(|x|), with q fitted to
 * -log erfc on 1 to 4, where erfc is below 2^-25. */
UNARY_FN float unary_erf(float x)
{
    const float t = x < 0 ? -x : x, s = x * x, u = t > 4.0f ? 4.0f : t;
    float p = 7.88911945e-05f, q = -0.000185574923f;
    p = p * s - 0.000802084126f;
    p = p * s + 0.00518953534f;
    p = p * s - 0.0268544446f;
    p = p * s + 0.112836002f;
    p = p * s - 0.376126271f;
    p = p * s + 1.12837917f;
    q = q * u + 0.00293961602f;
    q = q * u - 0.0218053523f;
    q = q * u + 0.103037438f;
    q = q * u + 0.6382256f;
    q = q * u + 1.12704008f;
    q = q * u + 0.000353708574f;
    const float far = 1.0f - unary_exp(-q);
    return t > 1.0f ? (x < 0 ? -far : far) : x * p;
}

#endif
