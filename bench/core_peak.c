#include "core_peak.h"
#include <dnnl.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"

enum { CHAINS = 12, ROUNDS = 2000000 };                  /* as many sums at once as hide the latency of one */
#define PEAK(name, isa, vec, set, mul_add)                                                     \
    __attribute__((target(isa))) static float name(void)                                       \
    {                                                                                          \
        vec sum[CHAINS], a = set(0.999f), b = set(1e-3f);                                      \
        for (int i = 0; i < CHAINS; i++) sum[i] = set((float)i);                               \
        for (int r = 0; r < ROUNDS; r++)                                                       \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] = mul_add(sum[i], a, b); \
        float out = 0, lanes[sizeof(vec) / sizeof(float)];                                      \
        for (int i = 0; i < CHAINS; i++) {                                                     \
            memcpy(lanes, &sum[i], sizeof lanes);                                                \
            out += lanes[0];                                                                    \
        }                                                                                      \
        return out;                                                                            \
    }
#define MUL_ADD(s, a, b) _mm_add_ps(_mm_mul_ps(s, a), b)
PEAK(peak16, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
PEAK(peak8, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
PEAK(peak4, "sse4.1", __m128, _mm_set1_ps, MUL_ADD)

/* Operations a nanosecond of the best of some calls. */
static double best_of(float (*run)(void), double operations)
{
    volatile float sink;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t t = clock_ns();
        sink = run();
        t = clock_ns() - t;
        if (t < best) best = t;
    }
    (void)sink;
    return operations / (double)best;
}

double core_peak_fp32(void)
{
    int isa = (int)dnnl_get_effective_cpu_isa(), lanes = 4;
    float (*run)(void) = peak4;
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) { run = peak16; lanes = 16; }
    else if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) { run = peak8; lanes = 8; }
    return best_of(run, 2.0 * lanes * CHAINS * ROUNDS);
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

enum { TILES = 4, TILE_ROUNDS = 400000, TILE_FLOP = 2 * 16 * 16 * 32 };

/* Four sums in tiles of zeros. */
__attribute__((target("amx-tile,amx-bf16"))) static float peak_tiles(void)
{
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
    for (int r = 0; r < TILE_ROUNDS; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 0;
}

__attribute__((target("avx512f,avx512bf16"))) static float peak_pairs(void)
{
    __m512 sum[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f7f), b = (__m512bh)_mm512_set1_epi16(0x3a83);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
    float out = 0;
    for (int i = 0; i < CHAINS; i++) out += _mm512_cvtss_f32(sum[i]);
    return out;
}

double core_peak_bf16(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };            /* as in cpu_amx.c */
    const int isa = (int)dnnl_get_effective_cpu_isa();
    const bool amx = (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx,
               pairs = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    if (amx && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA))
        return best_of(peak_tiles, (double)TILES * TILE_FLOP * TILE_ROUNDS);
    return pairs ? best_of(peak_pairs, 2.0 * 32 * CHAINS * ROUNDS) : 0;
}
