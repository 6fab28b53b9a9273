/* Random numbers of dropout and stochastic depth on a GPU. For the kernels in this folder only. */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H
#include "kernels/launch.h"
#include "model/op.h"

/* Philox4x32-10 (Salmon and others 2011), equal to Random123 on the host, whose C++ header needs the C++ library. */
DEVICE void philox(uint32_t key0, uint32_t key1, uint32_t *v)
{
    UNROLL for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * v[0], b = (uint64_t)0xCD9E8D57 * v[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ v[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ v[3] ^ key1,
                            (uint32_t)a};
        UNROLL for (int k = 0; k < 4; k++) v[k] = next[k];
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
}

enum { DROPOUT_DOMAIN = 3 };                             /* RNG_DROPOUT of base/rng.h */

/* Four words at a place of a sample, equal to rng_words on the host. */
DEVICE void dropout_words(const struct be_block *block, uint32_t layer, int64_t sample, uint32_t place, uint32_t *v)
{
    v[0] = (uint32_t)DROPOUT_DOMAIN << 24 | (layer & 0xffffff);
    v[1] = (uint32_t)block->step;
    v[2] = (uint32_t)sample;
    v[3] = place;
    philox((uint32_t)block->seed, (uint32_t)(block->seed >> 32), v);
}
#endif
