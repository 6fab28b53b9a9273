/* Stateless random numbers: Philox4x32-10 (Random123), a function of (seed, domain, counters). Any thread.
 *
 * The same arguments give the same four words on every rank, in every schedule, after every resume, on CPU and GPU. */
#ifndef BASE_RNG_H
#define BASE_RNG_H
#include <stdint.h>

enum rng_domain { RNG_INIT = 1, RNG_SHUFFLE = 2, RNG_DROPOUT = 3, RNG_SYNTH = 4, RNG_LABEL = 5, RNG_TEST = 6,
                  RNG_AUGMENT = 7, RNG_VALIDATION = 8, RNG_GENERATE = 9 };

/* A sequence of random words. The domain decides what a (24 bits), b and c are. */
struct rng_at { uint64_t seed; enum rng_domain domain; uint32_t a, b, c; };

/* The block-th four uniform words of a sequence: key = (seed), counter = (domain << 24 | a, b, c, block). */
void rng_words(struct rng_at at, uint32_t block, uint32_t out[4]);

/* Fills x[0..n) with uniform [0, 1) floats (24 bits each) or standard normals (Box-Muller in double). Element i comes
 * from block i / 4, so an array's prefix does not depend on its length. */
void rng_fill_uniform(struct rng_at at, float *x, uint64_t n);
void rng_fill_normal(struct rng_at at, float *x, uint64_t n);

/* Position i of epoch in a keyed permutation of [0, n). A Feistel network over Philox words with cycle walking, so
 * nothing is stored. */
uint64_t rng_permute(uint64_t seed, uint32_t epoch, uint64_t i, uint64_t n);

#endif
