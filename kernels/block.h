/* Operations of a block's threads and of a launch's blocks: sums, and finding the last block. For the kernels in this
 * folder only.
 *
 * The sizes alone fix every order, never the machine. last_block counts in the caller's memory (K_COUNTERS): launches
 * that share this memory must be on one stream. */
#ifndef KERNELS_BLOCK_H
#define KERNELS_BLOCK_H
#include "kernels/launch.h"

enum { BAD_CALL = 1 };                                   /* cudaErrorInvalidValue */

#ifdef __CUDACC__
#define UNROLL_4 _Pragma("unroll 4")

/* True for the last of n blocks to call it. That block may read what the others wrote before their calls; the counter
 * is 0 again then. */
DEVICE bool last_block(unsigned *counter, unsigned n)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == n - 1;
        if (last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}
DEVICE void count_up(unsigned long long *counter, unsigned long long n) { atomicAdd(counter, n); }
/* reads a value that another block of this launch wrote */
DEVICE float fresh(const float *p) { return __ldcg(p); }
DEVICE double fresh(const double *p) { return __ldcg(p); }

#else
#define UNROLL_4
DEVICE bool last_block(unsigned *counter, unsigned n)
{
    if (++*counter < n) return false;
    *counter = 0;
    return true;
}
DEVICE void count_up(unsigned long long *counter, unsigned long long n) { *counter += n; }
DEVICE float fresh(const float *p) { return *p; }
DEVICE double fresh(const double *p) { return *p; }
#endif

/* Reduces f(t) of all threads by `join`, pairs first; every thread gets the result. The block has THREADS threads. */
template <class Join, class F> DEVICE double block_join(const struct where &w, Join join, F f)
{
    SHARED double s[THREADS];
    EACH_THREAD(w, t) s[t] = f(t);
    for (int half = THREADS / 2; half; half /= 2) {
        BARRIER();
        EACH_THREAD(w, t) if (t < half) s[t] = join(s[t], s[t + half]);
    }
    BARRIER();
    double v = s[0];
    BARRIER();
    return v;
}
template <class F> DEVICE double block_sum(const struct where &w, F f)
{
    return block_join(w, [](double a, double b) { return a + b; }, f);
}
/* the maximum; ignores NaN */
template <class F> DEVICE double block_max(const struct where &w, F f)
{
    return block_join(w, [](double a, double b) { return b > a || a != a ? b : a; }, f);
}

/* ---- rows of channels ------------------------------------------------------------------------ */

/* How the blocks divide [rows][c]. A block has one slab (`width` neighbouring packs of channels) of one of the `parts`
 * of the rows. It takes `deep` rows at a time. */
struct thread_sharing { int64_t rows, per_part; int packs, width, slabs, deep, parts; };

/* At most `wide` packs a slab. At most `blocks` blocks unless there are more slabs. At least `least` rows a thread if
 * there are that many. */
static inline struct thread_sharing share(int64_t rows, int packs, int wide, int blocks, int least)
{
    struct thread_sharing s = {rows, 0, packs, 0, 0, 0, 0};
    s.slabs = (int)div_up(packs, wide);
    s.width = (int)div_up(packs, s.slabs);
    s.slabs = (int)div_up(packs, s.width);
    s.deep = THREADS / s.width;
    int64_t parts = blocks / s.slabs, most = div_up(rows, (int64_t)s.deep * least);
    if (parts > most) parts = most;
    if (parts < 1) parts = 1;
    s.per_part = div_up(div_up(rows, parts), s.deep) * s.deep;
    s.parts = (int)div_up(rows, s.per_part);
    return s;
}

/* This block's part, and a thread's place in it. */
struct thread_place {
    int slab, part;
    int64_t from, to;                                    /* rows of the part */
    DEVICE thread_place(const struct thread_sharing &s, const struct where &w) : slab(w.block % s.slabs),
        part(w.block / s.slabs)
    {
        from = part * s.per_part;
        to = from + s.per_part < s.rows ? from + s.per_part : s.rows;
    }
    DEVICE int pack(const struct thread_sharing &s, int t) const { return slab * s.width + t % s.width; }
    DEVICE bool has(const struct thread_sharing &s, int t) const { return t / s.width < s.deep && pack(s, t) < s.packs;
                                                                  }
};

/* Calls f(many<n>, i) so that every step-th row from i up to `to` is covered. Each call has rows i, i + step, ... i +
 * (n - 1) step. It takes K rows at a time, so that their loads are in flight together. */
template <int K> struct many { static constexpr int n = K; };
template <int K, class F> DEVICE void walk_rows(int64_t i, int64_t to, int step, F f)
{
    for (; i + (K - 1) * step < to; i += K * step) f(many<K>(), i);
    for (; i < to; i += step) f(many<1>(), i);
}

/* Two sums for each of `channels` <= THREADS channels. add(i, channel, v) adds source i of `sources` to v[2];
 * done(channel, v) gets the totals. THREADS / channels threads of a channel (`lanes`) each add their sources in
 * ascending order; then the lanes' sums are added, also in order. s: SHARED. */
typedef double channel_sums[2][THREADS];
template <class Add, class Done>
DEVICE void sum_channels(const struct where &w, channel_sums &s, int channels, int sources, Add add, Done done)
{
    int lanes = THREADS / channels;
    EACH_THREAD(w, t) {
        double v[2] = {0, 0};
        int ch = t % channels, lane = t / channels;
        if (lane < lanes) {
            UNROLL_4 for (int i = lane; i < sources; i += lanes) add(i, ch, v);
        }
        s[0][t] = v[0];
        s[1][t] = v[1];
    }
    BARRIER();
    EACH_THREAD(w, t) {
        if (t >= channels) continue;
        double v[2] = {0, 0};
        for (int k = 0; k < lanes; k++) {
            v[0] += s[0][k * channels + t];
            v[1] += s[1][k * channels + t];
        }
        done(t, v);
    }
    BARRIER();
}
#endif
