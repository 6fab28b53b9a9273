#include <math.h>
#include <Random123/philox.h>
#include "base/rng.h"

void rng_words(struct rng_at at, uint32_t block, uint32_t out[4])
{
    philox4x32_key_t key = {{(uint32_t)at.seed, (uint32_t)(at.seed >> 32)}};
    philox4x32_ctr_t ctr = {{(uint32_t)at.domain << 24 | (at.a & 0xffffff), at.b, at.c, block}};
    philox4x32_ctr_t r = philox4x32(ctr, key);
    for (int i = 0; i < 4; i++) out[i] = r.v[i];
}

void rng_fill_uniform(struct rng_at at, float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 4) {
        uint32_t w[4];
        rng_words(at, (uint32_t)(i / 4), w);
        for (uint64_t k = 0; k < 4 && i + k < n; k++) x[i + k] = (float)(w[k] >> 8) * 0x1p-24f;
    }
}

/* Two normals from two words by the Box-Muller formula; u is in (0, 1], so the logarithm is finite. */
static void normal_pair(uint32_t a, uint32_t b, float *x, float *y)
{
    double u = ((double)a + 1) * 0x1p-32, v = (double)b * 0x1p-32;
    double r = sqrt(-2 * log(u)), t = 6.283185307179586 * v;
    *x = (float)(r * cos(t));
    *y = (float)(r * sin(t));
}

void rng_fill_normal(struct rng_at at, float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 4) {
        uint32_t w[4];
        float z[4];
        rng_words(at, (uint32_t)(i / 4), w);
        normal_pair(w[0], w[1], &z[0], &z[1]);
        normal_pair(w[2], w[3], &z[2], &z[3]);
        for (uint64_t k = 0; k < 4 && i + k < n; k++) x[i + k] = z[k];
    }
}

/* Four Feistel rounds over the smallest even number of bits that covers n, repeated while the result is outside [0, n).
 * So it is a permutation of [0, n). */
uint64_t rng_permute(uint64_t seed, uint32_t epoch, uint64_t i, uint64_t n)
{
    if (n < 2) return 0;
    int half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t w[4];
            rng_words((struct rng_at){seed, RNG_SHUFFLE, round, epoch, (uint32_t)right}, (uint32_t)(right >> 32), w);
            uint64_t next = left ^ (w[0] & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
