/* Embedding: rows of a table by index, and their gradients without atomics. */
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

/* One block a position. The block at the first position of a row adds all positions of this row, in their order. So one
 * block writes a row, whatever the order of blocks, and the time does not depend on the table's size. */
template <class T> struct embed_back {
    struct k_rows k; const T *gy; float *gw; bool acc;
    DEVICE void block(const struct where &w) const
    {
        const int64_t first = w.block, row = row_at(k, first);
        if (row < 0) return;
        const double before = block_sum(w, [&](int t) {
            double n = 0;
            for (int64_t at = t; at < first; at += w.threads) n += row_at(k, at) == row;
            return n;
        });
        if (before > 0) return;
        EACH_THREAD(w, t) {
            for (int i = t; i < k.c; i += w.threads) {
                float sum = 0;
                for (int64_t at = first; at < k.n; at++)
                    if (row_at(k, at) == row) sum += to_float(gy[at * k.c + i]);
                give(&gw[row * k.c + i], sum, acc);
            }
        }
    }
};

extern "C" int k_embed_back(void *stream, enum ktype type, const struct k_rows *k, const void *gy, float *gw, bool acc)
{
    const size_t all = (size_t)k->count * (size_t)k->c;
    const int status = acc ? 0 : launch_one(stream, all, zero_op{gw});
    if (status) return status;
    return BY_TYPE(type, launch(stream, k->n, THREADS, embed_back<float>{*k, (const float *)gy, gw, acc}),
                   launch(stream, k->n, THREADS, embed_back<bf16>{*k, (const bf16 *)gy, gw, acc}));
}
