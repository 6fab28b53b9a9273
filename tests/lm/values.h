/* Values of the tiny decoders in tests/lm/models: functions of names alone, the same as in tests/torch/decoders.py. */
#ifndef TESTS_LM_VALUES_H
#define TESTS_LM_VALUES_H
#include <stdint.h>

/* splitmix64 */
static inline uint64_t value_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}
/* FNV-1a */
static inline uint64_t value_seed(const char *name)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    return h;
}
/* Number i of a name: below 2^24; and in +-1/2. */
static inline int64_t value_word(uint64_t seed, uint64_t i) { return (int64_t)(value_mix(seed + i) >> 40); }
static inline float value_at(uint64_t seed, uint64_t i) { return (float)value_word(seed, i) / (1 << 24) - 0.5f; }
#endif
