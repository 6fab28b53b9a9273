/* Shared by batch norm's forward and backward kernels: how blocks divide a tensor, and a channel's constants. For
 * norm.cu and norm_back.cu only. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

enum {
    /* packs of channels in a slab: 512 bytes of a row; or 64 bytes if there is little to do */
    WIDE_PACKS = 32, NARROW_PACKS = 4,
    /* resident blocks of a multiprocessor, limited by their registers: enough loads are in flight */
    AHEAD = 3, BACK = 2,
    GPU = 132,                                           /* multiprocessors of a large GPU */
    FEW_ROWS = 12,                                       /* up to so many rows a thread, one launch does all */
    SLAB = WIDE_PACKS * 8,                               /* most channels of a slab */
};

/* The division for sums (and values, if one block a slab does both), and for values in a separate launch. */
static inline bool few(int64_t rows, int packs)
{
    return rows <= (int64_t)FEW_ROWS * share(rows, packs, NARROW_PACKS, 1, 1).deep;
}
static inline struct thread_sharing share_sums(int64_t rows, int packs, int resident)
{
    return few(rows, packs) ? share(rows, packs, NARROW_PACKS, 1, 1)
                            : share(rows, packs, WIDE_PACKS, resident * GPU, 4);
}
static inline struct thread_sharing share_values(int64_t rows, int packs, int resident)
{
    return share(rows, packs, WIDE_PACKS, 4 * resident * GPU, 4);
}
static inline int64_t blocks_of(const struct thread_sharing &s) { return (int64_t)s.slabs * s.parts; }

/* channels of a slab whose packs have n */
DEVICE int channels_of(const struct thread_sharing &s, const struct thread_place &p, int n)
{
    int left = (s.packs - p.slab * s.width) * n;
    return left < s.width * n ? left : s.width * n;
}

/* The value to subtract from x before scaling: the mean, rounded to float. So a channel with nearly equal values loses
 * no precision. For bf16 it is 0, which saves registers: bf16's own rounding is far coarser. */
template <class T> DEVICE float centre(double mean) { return sizeof(T) == sizeof(float) ? (float)mean : 0.0f; }
template <class T> DEVICE float centred(float x, float middle) { return sizeof(T) == sizeof(float) ? x - middle : x; }

/* y = (x - middle) scale + shift */
struct norm_line { float middle, scale, shift; };
template <class T> DEVICE struct norm_line line_of(double mean, double var, double eps, float weight, float bias)
{
    double scale = weight / sqrt(var + eps);
    struct norm_line l = {centre<T>(mean), (float)scale, 0};
    l.shift = (float)(bias - (mean - l.middle) * scale);
    return l;
}
template <class T> DEVICE float on_line(const struct norm_line &l, float x)
{
    return centred<T>(x, l.middle) * l.scale + l.shift;
}

/* mean and squared deviations of some values; or two sums */
struct moments { float mean, m2; };
struct norm_totals { double mean, m2; };

/* How the parts of a slab are added: in groups of `span` neighbouring parts, then the groups. The last block to arrive
 * adds. So no block adds more than about twice the root of the number of parts in sequence, and the groups are added in
 * parallel. One walk over 396 parts would take longer than the values of many layers. */
enum { FEW_PARTS = 32 };                                 /* up to so many parts, one walk is faster than two meetings */
struct levels { int span, groups; };
static inline struct levels levels_of(int parts)
{
    struct levels l = {parts, 1};
    if (parts <= FEW_PARTS) return l;
    for (l.span = 1; l.span * l.span < parts; l.span++) continue;
    l.groups = (int)div_up(parts, l.span);
    return l;
}

/* The parts of `work`: the backward pass's totals of all channels, the sums of groups, the partial sums of all
 * blocks. */
static inline struct norm_totals *groups_of(void *work, int c)
{
    return (struct norm_totals *)((double *)work + 2 * c);
}
static inline struct moments *partial_of(void *work, const struct levels &l, int c)
{
    return (struct moments *)(groups_of(work, c) + (int64_t)l.groups * c);
}
static inline size_t work_of(int parts, int c)
{
    size_t totals = (size_t)levels_of(parts).groups + 1;
    return ((size_t)parts * sizeof(struct moments) + totals * sizeof(struct norm_totals)) * (size_t)c;
}
/* One counter for each slab, and one for each of its groups; slabs of one block need none. */
static inline bool countable(const struct thread_sharing &s)
{
    int64_t groups = levels_of(s.parts).groups;
    return s.parts == 1 || s.slabs * (groups > 1 ? groups + 1 : 1) <= K_COUNTERS;
}

/* The slab of a block: its division, its place, and the memory for sums. */
struct slab {
    channel_sums &sums; const struct thread_sharing &s; const struct levels &l; const struct thread_place &p;
    int channels; unsigned *arrived;
};

/* Adds the partial results of a slab's blocks; each block calls it after it has written its own.
 *   part(i, channel, v)   adds part i to v[2]
 *   keep(g, channel, v)   v is the sum of the parts of group g
 *   group(g, channel, v)  adds that sum to v
 *   total(channel, v)     v is the sum of all
 * Parts of a group, and groups, are added by sum_channels, so the order depends on rows and channels alone. If there is
 * one group, keep and group are not called. */
template <class Part, class Keep, class Group, class Total>
DEVICE void sum_parts(const struct where &w, const struct slab &k, Part part, Keep keep, Group group, Total total)
{
    channel_sums &sums = k.sums;
    const struct levels &l = k.l;
    const int parts = k.s.parts, channels = k.channels, g = k.p.part / l.span, from = g * l.span;
    const int n = from + l.span < parts ? l.span : parts - from;
    unsigned *of_slab = &k.arrived[k.p.slab];
    unsigned *of_group = l.groups > 1 ? &k.arrived[k.s.slabs + k.p.slab * l.groups + g] : of_slab;
    if (!last_block(of_group, (unsigned)n)) return;
    if (l.groups == 1) {
        sum_channels(w, sums, channels, n, part, total);
        return;
    }
    sum_channels(w, sums, channels, n, [&](int i, int ch, double *v) { part(from + i, ch, v); },
                 [&](int ch, const double *v) { keep(g, ch, v); });
    if (last_block(of_slab, (unsigned)l.groups)) sum_channels(w, sums, channels, l.groups, group, total);
}
#endif
