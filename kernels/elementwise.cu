/* Elementwise kernels: one pass over memory, 16 bytes a thread. */
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "model/op.h"

/* ---- relu ------------------------------------------------------------------------------------ */

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
        UNROLL for (int k = 0; k < N; k++) give(&x.v[k], to_float(v.v[k]) <= 0 ? 0.0f : to_float(g.v[k]), acc);
        put<N>(gx + i, x);
    }
};

extern "C" int k_relu(void *stream, enum ktype type, size_t n, const void *x, void *y)
{
    return BY_TYPE(type, launch_each<float>(stream, n, relu_op<float>{(const float *)x, (float *)y}),
                   launch_each<bf16>(stream, n, relu_op<bf16>{(const bf16 *)x, (bf16 *)y}));
}

template <class T> static int relu_back(void *stream, size_t n, const void *y, const struct k_grad *g)
{
    return launch_each<T>(stream, n, relu_back_op<T>{(const T *)y, (const T *)g->gy, (T *)g->gx, g->acc});
}

extern "C" int k_relu_back(void *stream, enum ktype type, size_t n, const void *y, const struct k_grad *g)
{
    return BY_TYPE(type, relu_back<float>(stream, n, y, g), relu_back<bf16>(stream, n, y, g));
}

/* ---- sums, copies ---------------------------------------------------------------------------- */

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

extern "C" int k_to_bf16(void *stream, size_t n, const float *x, void *y)
{
    return launch_each<float>(stream, n, to_bf16_op{x, (bf16 *)y});
}

/* ---- bias ------------------------------------------------------------------------------------ */

template <class T, int N, class I> struct bias_op {
    const float *bias; T *y; int c;
    DEVICE void one(I i) const
    {
        const int ch = (int)(i % (I)(c / N)) * N;
        T *const at = y + (size_t)i * N;
        pack<T, N> v = get<N>(at);
        UNROLL for (int k = 0; k < N; k++) from_float(&v.v[k], to_float(v.v[k]) + bias[ch + k]);
        put<N>(at, v);
    }
};

extern "C" int k_bias(void *stream, const struct k_shape *s, const float *bias, void *y)
{
    const size_t rows = (size_t)(s->n * s->points);
    return BY_TYPE(s->type, (launch_packs<bias_op, float>(stream, rows, s->c, true, bias, (float *)y, s->c)),
                   (launch_packs<bias_op, bf16>(stream, rows, s->c, true, bias, (bf16 *)y, s->c)));
}

/* Partial sums of BIAS_ROWS rows, then their sums: the order depends on the sizes alone. */
enum { BIAS_ROWS = 128 };

template <class T, int N, class I> struct bias_part {
    const T *gy; double *part; int64_t rows; int c;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N), p = i / packs;
        const int ch = (int)(i % packs) * N;
        int64_t r = (int64_t)p * BIAS_ROWS, to = r + BIAS_ROWS < rows ? r + BIAS_ROWS : rows;
        double sum[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        UNROLL_4 for (; r < to; r++) {
            pack<T, N> v = get<N>(gy + r * c + ch);
            UNROLL for (int k = 0; k < N; k++) sum[k] += to_float(v.v[k]);
        }
        UNROLL for (int k = 0; k < N; k++) part[(int64_t)p * c + ch + k] = sum[k];
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

extern "C" size_t k_bias_work(const struct k_shape *s)
{
    return (size_t)div_up(s->n * s->points, BIAS_ROWS) * (size_t)s->c * sizeof(double);
}

extern "C" int k_bias_back(void *stream, const struct k_shape *s, const void *gy, float *gb, bool acc, void *work)
{
    const int64_t rows = s->n * s->points;
    const int c = s->c;
    size_t parts = (size_t)div_up(rows, BIAS_ROWS);
    double *part = (double *)work;
    int bad = BY_TYPE(s->type,
                      (launch_packs<bias_part, float>(stream, parts, c, true, (const float *)gy, part, rows, c)),
                      (launch_packs<bias_part, bf16>(stream, parts, c, true, (const bf16 *)gy, part, rows, c)));
    return bad ? bad : launch_one(stream, (size_t)c, bias_sum{part, gb, (int)parts, c, acc});
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Four words are for four neighbours in logical order, [c][points] of a sample. A thread has such four elements where
 * their memory allows it, otherwise one element. */
enum dropout_reach { ONE_ELEMENT, FOUR_POINTS, FOUR_CHANNELS };

template <class T, class I> struct dropout_op {
    const T *x; T *y; const struct be_block *block; const int64_t *sample;
    int64_t points; int c; uint32_t limit, layer; float keep; bool acc; enum dropout_reach reach;

    DEVICE void words(int64_t n, int64_t at, uint32_t *v) const
    {
        dropout_words(block, layer, sample[n], (uint32_t)(at / 4), v);
    }
    DEVICE void element(int64_t i, uint32_t word) const
    {
        give(&y[i], word < limit ? 0.0f : to_float(x[i]) * keep, acc);
    }

    DEVICE void one(I i) const
    {
        uint32_t v[4];
        if (reach == ONE_ELEMENT) {
            const I per = (I)points * (I)c, in = i % per;
            const int64_t at = (int64_t)(in % (I)c) * points + in / (I)c;
            words((int64_t)(i / per), at, v);
            element((int64_t)i, v[at % 4]);
            return;
        }
        const I per = reach == FOUR_POINTS ? (I)(points / 4) * (I)c : (I)((c + 3) / 4), in = i % per;
        const int64_t n = (int64_t)(i / per), ch = reach == FOUR_POINTS ? in % (I)c : (int64_t)in * 4,
                      point = reach == FOUR_POINTS ? in / (I)c * 4 : 0;
        words(n, ch * points + point, v);
        UNROLL for (int k = 0; k < 4; k++) {
            if (reach == FOUR_POINTS) element((n * points + point + k) * c + ch, v[k]);
            else if (ch + k < c) element(n * c + ch + k, v[k]);
        }
    }
};

template <class T>
static int dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    const int64_t n = m->shape.n, points = m->shape.points;
    const int c = m->shape.c;
    const uint32_t limit = (uint32_t)(m->p * 4294967296.0);
    const float keep = (float)(1 / (1 - m->p));
    const enum dropout_reach reach = points == 1 ? FOUR_CHANNELS : points % 4 ? ONE_ELEMENT : FOUR_POINTS;
    const size_t all =
        (size_t)(reach == FOUR_CHANNELS ? n * ((c + 3) / 4) : n * points * c / (reach == FOUR_POINTS ? 4 : 1));
    const dropout_op<T, uint32_t> op = {(const T *)x, (T *)y, m->block, m->sample, points, c, limit, m->layer, keep,
                                        acc, reach};
    if (short_count(all)) return launch_one<uint32_t>(stream, all, op);
    return launch_one<size_t>(stream, all, dropout_op<T, size_t>{op.x, op.y, op.block, op.sample, points, c, limit,
                                                                 op.layer, keep, acc, reach});
}

extern "C" int k_dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    return BY_TYPE(m->shape.type, dropout<float>(stream, m, x, y, acc), dropout<bf16>(stream, m, x, y, acc));
}
