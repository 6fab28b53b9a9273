/* Attention of single tokens to a cache of keys and values (model/ops/cached_attention.h). */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

/* Where a row's sequence lies in the cache. */
DEVICE int64_t slot_of(const struct k_cached &k, int64_t row)
{
    return (int64_t)k.slots[row] * k.context * 2 * k.kv_heads * k.width;
}

/* One channel of a row's keys and values enters. */
template <class T> struct cached_enter {
    struct k_cached k;
    DEVICE void one(size_t i) const
    {
        const int64_t half = (int64_t)k.kv_heads * k.width, row = (int64_t)i / half, channel = (int64_t)i % half;
        float *entry = k.cache + slot_of(k, row) + (int64_t)k.positions[row] * 2 * half;
        entry[channel] = to_float(((const T *)k.x.k)[i]);
        entry[half + channel] = to_float(((const T *)k.x.v)[i]);
    }
};

/* One block a row and head of queries; its scores are in memory of their own. */
template <class T> struct cached_head {
    struct k_cached k; T *y;
    DEVICE void block(const struct where &w) const
    {
        const int64_t row = w.block / k.heads, head = w.block % k.heads, half = (int64_t)k.kv_heads * k.width;
        const float *keys = k.cache + slot_of(k, row) + head / (k.heads / k.kv_heads) * k.width;
        const T *q = (const T *)k.x.q + (int64_t)w.block * k.width;
        float *score = k.scores + (int64_t)w.block * k.context;
        const int seen = k.positions[row] + 1;
        const double most = block_max(w, [&](int t) {
            double m = -INFINITY;
            for (int j = t; j < seen; j += w.threads) {
                double sum = 0;
                for (int c = 0; c < k.width; c++) sum += (double)to_float(q[c]) * keys[j * 2 * half + c];
                score[j] = (float)(sum * k.scale);
                m = score[j] > m || score[j] != score[j] ? score[j] : m;
            }
            return m;
        });
        const double all = block_sum(w, [&](int t) {
            double sum = 0;
            for (int j = t; j < seen; j += w.threads) sum += score[j] = (float)exp(score[j] - most);
            return sum;
        });
        EACH_THREAD(w, t)
            for (int c = t; c < k.width; c += w.threads) {
                double sum = 0;
                for (int j = 0; j < seen; j++) sum += (double)score[j] * keys[j * 2 * half + half + c];
                give(&y[w.block * k.width + c], (float)(sum / all), false);
            }
    }
};

template <class T> static int cached(void *stream, const struct k_cached *k, void *y)
{
    const size_t entries = (size_t)k->n * (size_t)k->kv_heads * (size_t)k->width;
    const int bad = launch_one(stream, entries, cached_enter<T>{*k});
    return bad ? bad : launch(stream, (int64_t)k->n * k->heads, THREADS, cached_head<T>{*k, (T *)y});
}

extern "C" int k_cached_attention(void *stream, const struct k_cached *k, void *y)
{
    return BY_TYPE(k->type, cached<float>(stream, k, y), cached<bf16>(stream, k, y));
}
