/* Embedding: rows of a table by index, and their gradients without atomics: positions are sorted by their row. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

/* the row at a position; -1: the index is outside the table */
DEVICE int64_t row_at(const struct k_rows &k, int64_t at)
{
    const int64_t i = k.wide ? ((const int64_t *)k.index)[at] : ((const int32_t *)k.index)[at];
    return i >= 0 && i < k.count ? i : -1;
}

template <class T, int N, class I> struct embed_op {
    struct k_rows k; const float *table; T *y;
    DEVICE void one(I i) const
    {
        const I packs = (I)(k.c / N);
        const int64_t row = row_at(k, (int64_t)(i / packs));
        pack<float, N> v;
        pack<T, N> to;
        if (row >= 0) v = get<N>(table + row * k.c + (int64_t)(i % packs) * N);
        UNROLL for (int j = 0; j < N; j++) from_float(&to.v[j], row >= 0 ? v.v[j] : NAN);
        put<N>(y + (size_t)i * N, to);
    }
};

extern "C" int k_embed(void *stream, enum ktype type, const struct k_rows *k, const float *table, void *y)
{
    return BY_TYPE(type,
                   (launch_packs<embed_op, float>(stream, (size_t)k->n, k->c, true, *k, table, (float *)y)),
                   (launch_packs<embed_op, bf16>(stream, (size_t)k->n, k->c, true, *k, table, (bf16 *)y)));
}

struct zero_op {
    float *y;
    DEVICE void one(size_t i) const { y[i] = 0; }
};

/* ---- positions in the order of their rows: a stable radix sort by digits of eight bits ----------- */

constexpr int DIGITS = 256;
static_assert(DIGITS == THREADS, "a digit a thread");

/* from: positions before this pass, NULL: 0, 1 ... counts: int32[DIGITS][tiles], of a tile of THREADS positions. */
struct sort_pass {
    struct k_rows k; const int32_t *from; int32_t *to, *counts; int shift, tiles;
    DEVICE int32_t position(int64_t i) const { return from ? from[i] : (int32_t)i; }
    /* Positions without a row come last. */
    DEVICE int digit(int64_t i) const
    {
        if (i >= k.n) return -1;
        const int64_t row = row_at(k, position(i));
        return (int)((row < 0 ? k.count : row) >> shift) % DIGITS;
    }
    DEVICE void digits(const struct where &w, int (&d)[THREADS]) const
    {
        EACH_THREAD(w, t) d[t] = digit((int64_t)w.block * THREADS + t);
        BARRIER();
    }
};

struct sort_count {
    sort_pass p;
    DEVICE void block(const struct where &w) const
    {
        SHARED int d[THREADS];
        p.digits(w, d);
        EACH_THREAD(w, t) {
            int32_t n = 0;
            for (int i = 0; i < THREADS; i++) n += d[i] == t;
            p.counts[(int64_t)t * p.tiles + w.block] = n;
        }
    }
};

/* Each count becomes the sum of those before it; one block, neighbouring counts a thread. */
struct sort_sums {
    int32_t *counts; int64_t n;
    DEVICE void block(const struct where &w) const
    {
        SHARED int32_t before[THREADS];
        const int64_t some = (n + THREADS - 1) / THREADS;
        EACH_THREAD(w, t) {
            int32_t sum = 0;
            for (int64_t i = t * some; i < (t + 1) * some && i < n; i++) sum += counts[i];
            before[t] = sum;
        }
        BARRIER();
        EACH_THREAD(w, t) {
            int32_t sum = 0;
            for (int i = 0; t == 0 && i < THREADS; i++) {
                const int32_t own = before[i];
                before[i] = sum;
                sum += own;
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            int32_t sum = before[t];
            for (int64_t i = t * some; i < (t + 1) * some && i < n; i++) {
                const int32_t own = counts[i];
                counts[i] = sum;
                sum += own;
            }
        }
    }
};

struct sort_place {
    sort_pass p;
    DEVICE void block(const struct where &w) const
    {
        SHARED int d[THREADS];
        p.digits(w, d);
        EACH_THREAD(w, t) {
            if (d[t] < 0) continue;
            int32_t to = p.counts[(int64_t)d[t] * p.tiles + w.block];
            for (int i = 0; i < t; i++) to += d[i] == d[t];
            p.to[to] = p.position((int64_t)w.block * THREADS + t);
        }
    }
};

extern "C" size_t k_embed_work(int64_t n)
{
    return (size_t)(2 * n + DIGITS * div_up(n, THREADS)) * sizeof(int32_t);
}

/* *order: the sorted positions, in work. */
static int positions_sort(void *stream, const struct k_rows *k, int32_t *work, const int32_t **order)
{
    const int tiles = (int)div_up(k->n, THREADS);
    int32_t *const counts = work + 2 * k->n;
    int status = 0;
    *order = NULL;
    for (int shift = 0; !status && (shift == 0 || k->count >> shift); shift += 8) {
        int32_t *const to = *order == work ? work + k->n : work;
        const sort_pass p = {*k, *order, to, counts, shift, tiles};
        status = launch(stream, tiles, THREADS, sort_count{p});
        if (!status) status = launch(stream, 1, THREADS, sort_sums{counts, (int64_t)DIGITS * tiles});
        if (!status) status = launch(stream, tiles, THREADS, sort_place{p});
        *order = to;
    }
    return status;
}

/* ---- gradients -------------------------------------------------------------------------------- */

/* One block a place in the order and THREADS channels. The block at the first position of a row adds all positions of
 * this row, in their order. So one block writes a row, whatever the order of blocks. */
template <class T> struct embed_back {
    struct k_rows k; const int32_t *order; const T *gy; float *gw; bool acc; int slabs;
    DEVICE void block(const struct where &w) const
    {
        const int64_t first = w.block / slabs, row = row_at(k, order[first]);
        if (row < 0 || (first && row_at(k, order[first - 1]) == row)) return;
        int64_t end = first;
        for (double same = THREADS; same == THREADS; end += (int64_t)same)
            same = block_sum(w, [&](int t) {
                return (double)(end + t < k.n && row_at(k, order[end + t]) == row);
            });
        EACH_THREAD(w, t) {
            const int i = w.block % slabs * THREADS + t;
            if (i >= k.c) continue;
            float sum = 0;
            UNROLL_4 for (int64_t at = first; at < end; at++) sum += to_float(gy[(int64_t)order[at] * k.c + i]);
            give(&gw[row * k.c + i], sum, acc);
        }
    }
};

extern "C" int k_embed_back(void *stream, enum ktype type, const struct k_rows *k, const void *gy, float *gw, bool acc,
                            void *work)
{
    const size_t all = (size_t)k->count * (size_t)k->c;
    const int slabs = (int)div_up(k->c, THREADS);
    const int32_t *order;
    if (k->n > INT32_MAX / slabs) return BAD_CALL;
    int status = acc ? 0 : launch_one(stream, all, zero_op{gw});
    if (!status) status = positions_sort(stream, k, (int32_t *)work, &order);
    if (status) return status;
    const embed_back<float> wide = {*k, order, (const float *)gy, gw, acc, slabs};
    const embed_back<bf16> narrow = {*k, order, (const bf16 *)gy, gw, acc, slabs};
    return BY_TYPE(type, launch(stream, k->n * slabs, THREADS, wide), launch(stream, k->n * slabs, THREADS, narrow));
}
