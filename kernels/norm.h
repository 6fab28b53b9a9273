/* What batch norm's forward and backward kernels share: how a tensor is cut up, and the constants of a channel. For norm.cu and norm_back.cu only. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

enum {
    WIDE_PACKS = 32, NARROW_PACKS = 4,                   /* packs of channels in a slab: 512 bytes of a row; 64 where there is little to do */
    AHEAD = 3, BACK = 2,                                 /* blocks that a multiprocessor holds at once, by their registers: enough loads are under way */
    GPU = 132,                                           /* multiprocessors of a large GPU */
    FEW_ROWS = 12,                                       /* rows of a thread up to which one launch does all */
    MAX_SLABS = K_COUNTERS,
    SLAB = WIDE_PACKS * 8,                               /* most channels of a slab */
};

/* Sums, and values where one block a slab does both; and values in a launch of their own. */
static inline bool few(int64_t rows, int packs) { return rows <= (int64_t)FEW_ROWS * share(rows, packs, NARROW_PACKS, 1, 1).deep; }
static inline struct sharing share_sums(int64_t rows, int packs, int resident)
{
    return few(rows, packs) ? share(rows, packs, NARROW_PACKS, 1, 1) : share(rows, packs, WIDE_PACKS, resident * GPU, 4);
}
static inline struct sharing share_values(int64_t rows, int packs, int resident) { return share(rows, packs, WIDE_PACKS, 4 * resident * GPU, 4); }
static inline int64_t blocks_of(const struct sharing &s) { return (int64_t)s.slabs * s.parts; }

/* Channels of a slab of packs of n. */
DEVICE int channels_of(const struct sharing &s, const struct place &p, int n)
{
    int left = (s.packs - p.slab * s.width) * n;
    return left < s.width * n ? left : s.width * n;
}

/* What is taken from values of type T before they are scaled: the mean, rounded to float, so that nothing is lost where all values of a channel are nearly
 * equal. For bf16 it is 0, which saves registers: its own rounding is far coarser. */
template <class T> DEVICE float centre(double mean) { return sizeof(T) == sizeof(float) ? (float)mean : 0.0f; }
template <class T> DEVICE float centred(float x, float middle) { return sizeof(T) == sizeof(float) ? x - middle : x; }

/* y = (x - middle) scale + shift */
struct line { float middle, scale, shift; };
template <class T> DEVICE struct line line_of(double mean, double var, double eps, float weight, float bias)
{
    double scale = weight / sqrt(var + eps);
    struct line l = {centre<T>(mean), (float)scale, 0};
    l.shift = (float)(bias - (mean - l.middle) * scale);
    return l;
}
template <class T> DEVICE float on_line(const struct line &l, float x) { return centred<T>(x, l.middle) * l.scale + l.shift; }

/* Totals of the backward pass, then partial results of all blocks. */
struct moments { float mean, m2; };                      /* of some values, and their squared deviations; or two sums */
static inline struct moments *partial_of(void *work, int c) { return (struct moments *)((double *)work + 2 * c); }
#endif
