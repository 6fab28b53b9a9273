/* Elementwise kernels: one pass over memory, 16 bytes a thread. */
#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "model/op.h"

/* ---- relu ------------------------------------------------------------------------------------------------------------------------------- */

template <class T> struct relu_op {
    const T *x; T *y;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> v = get<N>(x + i);
        UNROLL for (int k = 0; k < N; k++) if (to_float(v.v[k]) <= 0) from_float(&v.v[k], 0.0f);
        put<N>(y + i, v);
    }
};

template <class T> struct relu_back_op {
    const T *y, *gy; T *gx; bool acc;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> v = get<N>(y + i), g = get<N>(gy + i), x;
        if (acc) x = get<N>(gx + i);
        UNROLL for (int k = 0; k < N; k++) give(&x.v[k], to_float(v.v[k]) > 0 ? to_float(g.v[k]) : 0.0f, acc);
        put<N>(gx + i, x);
    }
};

extern "C" int k_relu(void *stream, enum ktype type, size_t n, const void *x, void *y)
{
    return BY_TYPE(type, launch_each<float>(stream, n, relu_op<float>{(const float *)x, (float *)y}),
                   launch_each<bf16>(stream, n, relu_op<bf16>{(const bf16 *)x, (bf16 *)y}));
}

extern "C" int k_relu_back(void *stream, enum ktype type, size_t n, const void *y, const void *gy, void *gx, bool acc)
{
    return BY_TYPE(type, launch_each<float>(stream, n, relu_back_op<float>{(const float *)y, (const float *)gy, (float *)gx, acc}),
                   launch_each<bf16>(stream, n, relu_back_op<bf16>{(const bf16 *)y, (const bf16 *)gy, (bf16 *)gx, acc}));
}

/* ---- sums, copies ----------------------------------------------------------------------------------------------------------------------- */

template <class T> struct add_op {
    const T *a, *b; T *y;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> v = get<N>(a + i), u = get<N>(b + i);
        UNROLL for (int k = 0; k < N; k++) from_float(&v.v[k], to_float(v.v[k]) + to_float(u.v[k]));
        put<N>(y + i, v);
    }
};

extern "C" int k_add(void *stream, enum ktype type, size_t n, const void *a, const void *b, void *y)
{
    return BY_TYPE(type, launch_each<float>(stream, n, add_op<float>{(const float *)a, (const float *)b, (float *)y}),
                   launch_each<bf16>(stream, n, add_op<bf16>{(const bf16 *)a, (const bf16 *)b, (bf16 *)y}));
}

template <class T> struct copy_op {
    const T *x; T *y;
    template <int N> DEVICE void at(size_t i) const { put<N>(y + i, get<N>(x + i)); }
};

extern "C" int k_copy(void *stream, enum ktype type, size_t n, const void *x, void *y, bool acc)
{
    if (acc) return k_add(stream, type, n, y, x, y);
    return BY_TYPE(type, launch_each<float>(stream, n, copy_op<float>{(const float *)x, (float *)y}),
                   launch_each<bf16>(stream, n, copy_op<bf16>{(const bf16 *)x, (bf16 *)y}));
}

struct to_bf16_op {
    const float *x; bf16 *y;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<float, N> v = get<N>(x + i);
        pack<bf16, N> r;
        UNROLL for (int k = 0; k < N; k++) from_float(&r.v[k], v.v[k]);
        put<N>(y + i, r);
    }
};

extern "C" int k_to_bf16(void *stream, size_t n, const float *x, void *y) { return launch_each<float>(stream, n, to_bf16_op{x, (bf16 *)y}); }

/* ---- bias --------------------------------------------------------------------------------------------------------------------------------- */

template <class T> struct bias_op {
    const float *bias; T *y; int c;
    DEVICE void one(size_t i) const { from_float(&y[i], to_float(y[i]) + bias[i % (size_t)c]); }
};

extern "C" int k_bias(void *stream, enum ktype type, int64_t rows, int c, const float *bias, void *y)
{
    size_t n = (size_t)rows * (size_t)c;
    return BY_TYPE(type, launch_one(stream, n, bias_op<float>{bias, (float *)y, c}), launch_one(stream, n, bias_op<bf16>{bias, (bf16 *)y, c}));
}

/* Partial sums of BIAS_ROWS rows, then sums of those: the order depends on the sizes alone. */
enum { BIAS_ROWS = 128 };

template <class T> struct bias_part {
    const T *gy; double *part; int64_t rows; int c, tiles;   /* tiles of THREADS channels */
    DEVICE void block(const struct where &w) const
    {
        int64_t r0 = (int64_t)(w.block / tiles) * BIAS_ROWS, r1 = r0 + BIAS_ROWS < rows ? r0 + BIAS_ROWS : rows;
        EACH_THREAD(w, t) {
            int ch = w.block % tiles * w.threads + t;
            double sum = 0;
            if (ch < c) {
                for (int64_t r = r0; r < r1; r++) sum += to_float(gy[r * c + ch]);
                part[(int64_t)(w.block / tiles) * c + ch] = sum;
            }
        }
    }
};

struct bias_sum {
    const double *part; float *gb; int n, c; bool acc;
    DEVICE void one(size_t ch) const
    {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += part[(size_t)i * (size_t)c + ch];
        give(&gb[ch], (float)sum, acc);
    }
};

extern "C" size_t k_bias_work(int64_t rows, int c) { return (size_t)div_up(rows, BIAS_ROWS) * (size_t)c * sizeof(double); }

extern "C" int k_bias_back(void *stream, enum ktype type, int64_t rows, int c, const void *gy, float *gb, bool acc, void *work)
{
    int64_t parts = div_up(rows, BIAS_ROWS), tiles = div_up(c, THREADS);
    double *part = (double *)work;
    int bad = BY_TYPE(type, launch(stream, parts * tiles, THREADS, bias_part<float>{(const float *)gy, part, rows, c, (int)tiles}),
                      launch(stream, parts * tiles, THREADS, bias_part<bf16>{(const bf16 *)gy, part, rows, c, (int)tiles}));
    return bad ? bad : launch_one(stream, (size_t)c, bias_sum{part, gb, (int)parts, c, acc});
}

/* ---- dropout ---------------------------------------------------------------------------------------------------------------------------- */

/* Philox4x32-10 (Salmon and others 2011), as Random123 has it on the host; its C++ header wants the C++ library. */
DEVICE void philox(uint32_t key0, uint32_t key1, uint32_t *v)
{
    UNROLL for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * v[0], b = (uint64_t)0xCD9E8D57 * v[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ v[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ v[3] ^ key1, (uint32_t)a};
        UNROLL for (int k = 0; k < 4; k++) v[k] = next[k];
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
}

/* Four words serve four neighbours in logical order, [c][points] of a sample. A thread has such four where they lie well in memory, otherwise one element. */
enum dropout_reach { ONE_ELEMENT, FOUR_POINTS, FOUR_CHANNELS };

template <class T> struct dropout_op {
    const T *x; T *y; const struct be_block *block; const int64_t *sample;
    int64_t points; int c; uint32_t limit, layer; float keep; bool acc; enum dropout_reach reach;
    enum { DROPOUT_DOMAIN = 3 };                         /* RNG_DROPOUT of base/rng.h */

    DEVICE void words(int64_t n, int64_t at, uint32_t *v) const
    {
        v[0] = (uint32_t)DROPOUT_DOMAIN << 24 | (layer & 0xffffff);
        v[1] = (uint32_t)block->step;
        v[2] = (uint32_t)sample[n];
        v[3] = (uint32_t)(at / 4);
        philox((uint32_t)block->seed, (uint32_t)(block->seed >> 32), v);
    }
    DEVICE void element(int64_t i, uint32_t word) const { give(&y[i], word < limit ? 0.0f : to_float(x[i]) * keep, acc); }

    DEVICE void one(size_t i) const
    {
        uint32_t v[4];
        if (reach == ONE_ELEMENT) {
            int64_t per = points * c, n = (int64_t)i / per, in = (int64_t)i % per, at = in % c * points + in / c;
            words(n, at, v);
            element((int64_t)i, v[at % 4]);
            return;
        }
        int64_t per = reach == FOUR_POINTS ? points / 4 * c : (c + 3) / 4, n = (int64_t)i / per, in = (int64_t)i % per;
        int64_t ch = reach == FOUR_POINTS ? in % c : 4 * in, point = reach == FOUR_POINTS ? in / c * 4 : 0;
        words(n, ch * points + point, v);
        UNROLL for (int k = 0; k < 4; k++) {
            if (reach == FOUR_POINTS) element((n * points + point + k) * c + ch, v[k]);
            else if (ch + k < c) element(n * c + ch + k, v[k]);
        }
    }
};

template <class T> static int dropout(void *stream, int64_t n, struct dropout_op<T> op)
{
    op.reach = op.points == 1 ? FOUR_CHANNELS : op.points % 4 ? ONE_ELEMENT : FOUR_POINTS;
    int64_t all = op.reach == FOUR_CHANNELS ? n * ((op.c + 3) / 4) : n * op.points * op.c / (op.reach == FOUR_POINTS ? 4 : 1);
    return launch_one(stream, (size_t)all, op);
}

extern "C" int k_dropout(void *stream, enum ktype type, int64_t n, int64_t points, int c, double p, uint32_t layer, const struct be_block *block,
                         const int64_t *sample, const void *x, void *y, bool acc)
{
    uint32_t limit = (uint32_t)(p * 4294967296.0);
    float keep = (float)(1 / (1 - p));
    return BY_TYPE(type, (dropout<float>(stream, n, {(const float *)x, (float *)y, block, sample, points, c, limit, layer, keep, acc, ONE_ELEMENT})),
                   (dropout<bf16>(stream, n, {(const bf16 *)x, (bf16 *)y, block, sample, points, c, limit, layer, keep, acc, ONE_ELEMENT})));
}
