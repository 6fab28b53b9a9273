/* Channels that are repeated, dropped as a whole, or become probabilities of each point. */
#include <math.h>
#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "kernels/philox.h"

/* ---- repetition ------------------------------------------------------------------------------ */

template <class T, class I> struct repeat_op {
    const T *x; T *y; int c, count;
    DEVICE void one(I i) const
    {
        const I width = (I)c * (I)count;
        y[i] = x[(size_t)(i / width) * (size_t)c + (size_t)(i % width % (I)c)];
    }
};

template <class T, class I> struct repeat_back_op {
    const T *gy; T *gx; int c, count; bool acc;
    DEVICE void one(I i) const
    {
        const T *const from = gy + (size_t)(i / (I)c) * (size_t)c * (size_t)count + (size_t)(i % (I)c);
        double sum = 0;
        for (int k = 0; k < count; k++) sum += to_float(from[(size_t)k * (size_t)c]);
        give(&gx[i], (float)sum, acc);
    }
};

template <class T> static int repeated(void *stream, const struct k_shape *s, int count, const void *x, void *y)
{
    const size_t all = (size_t)(s->n * s->points) * (size_t)s->c * (size_t)count;
    const repeat_op<T, uint32_t> op = {(const T *)x, (T *)y, s->c, count};
    if (short_count(all)) return launch_one<uint32_t>(stream, all, op);
    return launch_one<size_t>(stream, all, repeat_op<T, size_t>{op.x, op.y, op.c, op.count});
}

template <class T> static int repeat_back(void *stream, const struct k_shape *s, int count, const struct k_grad *g)
{
    const size_t all = (size_t)(s->n * s->points) * (size_t)s->c;
    const repeat_back_op<T, uint32_t> op = {(const T *)g->gy, (T *)g->gx, s->c, count, g->acc};
    if (short_count(all)) return launch_one<uint32_t>(stream, all, op);
    return launch_one<size_t>(stream, all, repeat_back_op<T, size_t>{op.gy, op.gx, op.c, op.count, op.acc});
}

extern "C" int k_repeat(void *stream, const struct k_shape *s, int count, const void *x, void *y)
{
    return BY_TYPE(s->type, repeated<float>(stream, s, count, x, y), repeated<bf16>(stream, s, count, x, y));
}

extern "C" int k_repeat_back(void *stream, const struct k_shape *s, int count, const struct k_grad *g)
{
    return BY_TYPE(s->type, repeat_back<float>(stream, s, count, g), repeat_back<bf16>(stream, s, count, g));
}

/* ---- dropout of channels --------------------------------------------------------------------- */

/* Four words are for four neighbouring channels. */
template <class T, int N, class I> struct channel_dropout_op {
    const T *x; T *y; const struct be_block *block; const int64_t *sample;
    int64_t points; int c; uint32_t limit, layer; float keep; bool acc;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N);
        const int ch = (int)(i % packs) * N;
        const int64_t n = (int64_t)(i / packs / (I)points);
        const pack<T, N> v = get<N>(x + (size_t)i * N);
        pack<T, N> to;
        uint32_t word[4];
        if (acc) to = get<N>(y + (size_t)i * N);
        UNROLL for (int k = 0; k < N; k++) {
            if (k % 4 == 0) dropout_words(block, layer, sample[n], (uint32_t)((ch + k) / 4), word);
            give(&to.v[k], word[(ch + k) % 4] < limit ? 0.0f : to_float(v.v[k]) * keep, acc);
        }
        put<N>(y + (size_t)i * N, to);
    }
};

template <class T> static int channel_dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    const struct k_shape *const s = &m->shape;
    return launch_packs<channel_dropout_op, T>(stream, (size_t)(s->n * s->points), s->c, true, (const T *)x, (T *)y,
                                               m->block, m->sample, s->points, s->c, (uint32_t)(m->p * 4294967296.0),
                                               m->layer, (float)(1 / (1 - m->p)), acc);
}

extern "C" int k_channel_dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    return BY_TYPE(m->shape.type, channel_dropout<float>(stream, m, x, y, acc),
                   channel_dropout<bf16>(stream, m, x, y, acc));
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* One thread a row: there are few channels where points are classified. */
template <class T> struct softmax_op {
    const T *x; T *y; int c; bool logs;
    DEVICE void one(size_t i) const
    {
        const T *const row = x + i * (size_t)c;
        float most = to_float(row[0]);
        double sum = 0;
        for (int k = 1; k < c; k++) most = to_float(row[k]) > most ? to_float(row[k]) : most;
        for (int k = 0; k < c; k++) sum += exp((double)to_float(row[k]) - most);
        const double whole = logs ? most + log(sum) : sum;
        for (int k = 0; k < c; k++) {
            const double v = to_float(row[k]);
            from_float(&y[i * (size_t)c + (size_t)k], (float)(logs ? v - whole : exp(v - most) / whole));
        }
    }
};

template <class T> struct softmax_back_op {
    const T *y, *gy; T *gx; int c; bool logs, acc;
    DEVICE void one(size_t i) const
    {
        const size_t at = i * (size_t)c;
        double sum = 0;
        for (int k = 0; k < c; k++) sum += (double)to_float(gy[at + k]) * (logs ? 1 : to_float(y[at + k]));
        for (int k = 0; k < c; k++) {
            const float v = to_float(y[at + k]), g = to_float(gy[at + k]);
            give(&gx[at + k], (float)(logs ? g - exp((double)v) * sum : v * (g - sum)), acc);
        }
    }
};

template <class T> static int softmax_back(void *stream, const struct k_shape *s, bool logs, const void *y,
                                           const struct k_grad *g)
{
    return launch_one(stream, (size_t)(s->n * s->points),
                      softmax_back_op<T>{(const T *)y, (const T *)g->gy, (T *)g->gx, s->c, logs, g->acc});
}

extern "C" int k_softmax(void *stream, const struct k_shape *s, bool logs, const void *x, void *y)
{
    const size_t rows = (size_t)(s->n * s->points);
    return BY_TYPE(s->type, launch_one(stream, rows, softmax_op<float>{(const float *)x, (float *)y, s->c, logs}),
                   launch_one(stream, rows, softmax_op<bf16>{(const bf16 *)x, (bf16 *)y, s->c, logs}));
}

extern "C" int k_softmax_back(void *stream, const struct k_shape *s, bool logs, const void *y, const struct k_grad *g)
{
    return BY_TYPE(s->type, softmax_back<float>(stream, s, logs, y, g), softmax_back<bf16>(stream, s, logs, y, g));
}
