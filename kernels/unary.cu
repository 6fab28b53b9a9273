/* Functions of one value (src/model/ops/unary.h), products, stochastic depth. */
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "model/op.h"
#include "model/ops/unary.h"

/* ---- functions of one value ------------------------------------------------------------------ */

/* A function as a type. */
#define UNARY_RULE(name, ...) \
    struct name##_rule { \
        DEVICE static float value(float x, float a) { return name##_value(x, a); } \
        DEVICE static float slope(float v, float a) { return name##_slope(v, a); } \
    };
#define UNARY_FILES
#include "registry.inc"

template <class Rule, class T> struct unary_op {
    const T *x; T *y; float a;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> v = get<N>(x + i);
        UNROLL for (int k = 0; k < N; k++) from_float(&v.v[k], Rule::value(to_float(v.v[k]), a));
        put<N>(y + i, v);
    }
};

template <class Rule, class T> struct unary_back_op {
    const T *v, *gy; T *gx; float a; bool acc;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> u = get<N>(v + i), g = get<N>(gy + i), x;
        if (acc) x = get<N>(gx + i);
        UNROLL for (int k = 0; k < N; k++)
            give(&x.v[k], to_float(g.v[k]) * Rule::slope(to_float(u.v[k]), a), acc);
        put<N>(gx + i, x);
    }
};

template <class Rule> static int unary(void *stream, const struct k_unary *k, const void *x, void *y)
{
    return BY_TYPE(k->type,
                   launch_each<float>(stream, k->n, unary_op<Rule, float>{(const float *)x, (float *)y, k->a}),
                   launch_each<bf16>(stream, k->n, unary_op<Rule, bf16>{(const bf16 *)x, (bf16 *)y, k->a}));
}

template <class Rule, class T>
static int unary_back_of(void *stream, const struct k_unary *k, const void *v, const struct k_grad *g)
{
    return launch_each<T>(stream, k->n,
                          unary_back_op<Rule, T>{(const T *)v, (const T *)g->gy, (T *)g->gx, k->a, g->acc});
}

template <class Rule>
static int unary_back(void *stream, const struct k_unary *k, const void *v, const struct k_grad *g)
{
    return BY_TYPE(k->type, (unary_back_of<Rule, float>(stream, k, v, g)),
                   (unary_back_of<Rule, bf16>(stream, k, v, g)));
}

extern "C" int k_unary(void *stream, const struct k_unary *k, const void *x, void *y)
{
#define UNARY(name) unary<name##_rule>,
    static int (*const of[])(void *, const struct k_unary *, const void *, void *) = {
#include "registry.inc"
    };
    return of[k->which](stream, k, x, y);
}

extern "C" int k_unary_back(void *stream, const struct k_unary *k, const void *v, const struct k_grad *g)
{
#define UNARY(name) unary_back<name##_rule>,
    static int (*const of[])(void *, const struct k_unary *, const void *, const struct k_grad *) = {
#include "registry.inc"
    };
    return of[k->which](stream, k, v, g);
}

/* ---- products -------------------------------------------------------------------------------- */

template <class T> struct multiply_op {
    const T *a, *b; T *y; bool acc;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<T, N> v = get<N>(a + i), u = get<N>(b + i), x;
        if (acc) x = get<N>(y + i);
        UNROLL for (int k = 0; k < N; k++) give(&x.v[k], to_float(v.v[k]) * to_float(u.v[k]), acc);
        put<N>(y + i, x);
    }
};

template <class T> static int multiply(void *stream, size_t n, const void *a, const struct k_grad *g)
{
    return launch_each<T>(stream, n, multiply_op<T>{(const T *)a, (const T *)g->gy, (T *)g->gx, g->acc});
}

extern "C" int k_multiply_back(void *stream, enum ktype type, size_t n, const void *other, const struct k_grad *g)
{
    return BY_TYPE(type, multiply<float>(stream, n, other, g), multiply<bf16>(stream, n, other, g));
}

extern "C" int k_multiply(void *stream, enum ktype type, size_t n, const void *a, const void *b, void *y)
{
    const struct k_grad to = {b, y, false};
    return k_multiply_back(stream, type, n, a, &to);
}

template <class T, int N, class I> struct scale_op {
    const T *x, *f; T *y; int64_t points; int c; bool acc;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N), n = i / ((I)points * packs);
        const pack<T, N> v = get<N>(x + (size_t)i * N), by = get<N>(f + (int64_t)n * c + (int)(i % packs) * N);
        pack<T, N> to;
        if (acc) to = get<N>(y + (size_t)i * N);
        UNROLL for (int k = 0; k < N; k++) give(&to.v[k], to_float(v.v[k]) * to_float(by.v[k]), acc);
        put<N>(y + (size_t)i * N, to);
    }
};

template <class T> static int scale(void *stream, const struct k_shape *s, const void *f, const struct k_grad *g)
{
    return launch_packs<scale_op, T>(stream, (size_t)(s->n * s->points), s->c, true, (const T *)g->gy, (const T *)f,
                                     (T *)g->gx, s->points, s->c, g->acc);
}

extern "C" int k_scale_back(void *stream, const struct k_shape *s, const void *f, const struct k_grad *g)
{
    return BY_TYPE(s->type, scale<float>(stream, s, f, g), scale<bf16>(stream, s, f, g));
}

extern "C" int k_scale(void *stream, const struct k_shape *s, const void *x, const void *f, void *y)
{
    const struct k_grad to = {x, y, false};
    return k_scale_back(stream, s, f, &to);
}

/* One thread a channel of a sample, as in mean_op of pool.cu. */
template <class T, class I> struct dot_op {
    const T *x, *gy; T *gf; int64_t points; int c; bool acc;
    DEVICE void one(I i) const
    {
        const int64_t from = (int64_t)(i / (I)c) * points * c + i % (I)c;
        double sum = 0;
        for (int64_t p = 0; p < points; p++) sum += (double)to_float(x[from + p * c]) * to_float(gy[from + p * c]);
        give(&gf[i], (float)sum, acc);
    }
};

template <class T> static int dot(void *stream, const struct k_shape *s, const void *x, const struct k_grad *g)
{
    const size_t all = (size_t)s->n * (size_t)s->c;
    const dot_op<T, size_t> op = {(const T *)x, (const T *)g->gy, (T *)g->gx, s->points, s->c, g->acc};
    if (!short_count(all)) return launch_one<size_t>(stream, all, op);
    return launch_one<uint32_t>(stream, all, dot_op<T, uint32_t>{op.x, op.gy, op.gf, op.points, op.c, op.acc});
}

extern "C" int k_dot_back(void *stream, const struct k_shape *s, const void *x, const struct k_grad *g)
{
    return BY_TYPE(s->type, dot<float>(stream, s, x, g), dot<bf16>(stream, s, x, g));
}

/* ---- weights of channels --------------------------------------------------------------------- */

template <class T, int N, class I> struct weigh_op {
    const T *x; const float *weight; T *y; int c; bool acc;
    DEVICE void one(I i) const
    {
        const int ch = (int)(i % (I)(c / N)) * N;
        const pack<T, N> v = get<N>(x + (size_t)i * N);
        pack<T, N> to;
        if (acc) to = get<N>(y + (size_t)i * N);
        UNROLL for (int k = 0; k < N; k++) give(&to.v[k], to_float(v.v[k]) * weight[ch + k], acc);
        put<N>(y + (size_t)i * N, to);
    }
};

template <class T> static int weigh(void *stream, const struct k_shape *s, const float *weight, const struct k_grad *g)
{
    return launch_packs<weigh_op, T>(stream, (size_t)(s->n * s->points), s->c, true, (const T *)g->gy, weight,
                                     (T *)g->gx, s->c, g->acc);
}

extern "C" int k_weigh_back(void *stream, const struct k_shape *s, const float *weight, const struct k_grad *g)
{
    return BY_TYPE(s->type, weigh<float>(stream, s, weight, g), weigh<bf16>(stream, s, weight, g));
}

extern "C" int k_weigh(void *stream, const struct k_shape *s, const void *x, const float *weight, void *y)
{
    const struct k_grad to = {x, y, false};
    return k_weigh_back(stream, s, weight, &to);
}

/* Sums of at most 512 parts of the rows, then their sum: the order depends on the sizes alone. */
static int64_t weigh_rows(const struct k_shape *s)
{
    const int64_t least = div_up(s->n * s->points, 512);
    return least > 128 ? least : (int64_t)128;
}

/* below: only where x is not above zero */
template <class T> struct weigh_part {
    const T *x, *gy; double *part; int64_t rows, per; int c; bool below;
    DEVICE void one(size_t i) const
    {
        const int64_t p = (int64_t)(i / (size_t)c), ch = (int64_t)(i % (size_t)c);
        const int64_t to = (p + 1) * per < rows ? (p + 1) * per : rows;
        double sum = 0;
        for (int64_t r = p * per; r < to; r++) {
            const float v = to_float(x[r * c + ch]);
            sum += below && v > 0 ? 0 : (double)to_float(gy[r * c + ch]) * v;
        }
        part[i] = sum;
    }
};

struct weigh_sum {
    const double *part; float *gw; int64_t parts; int c; bool acc;
    DEVICE void one(size_t ch) const
    {
        double sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += part[(size_t)p * (size_t)c + ch];
        give(&gw[ch], (float)sum, acc);
    }
};

extern "C" size_t k_weigh_work(const struct k_shape *s)
{
    return sizeof(double) * (size_t)div_up(s->n * s->points, weigh_rows(s)) * (size_t)s->c;
}

template <class T>
static int weigh_parts(void *stream, const struct k_shape *s, const void *x, const void *gy, double *part, bool below)
{
    const int64_t rows = s->n * s->points, per = weigh_rows(s);
    return launch_one(stream, (size_t)(div_up(rows, per) * s->c),
                      weigh_part<T>{(const T *)x, (const T *)gy, part, rows, per, s->c, below});
}

static int weigh_all(void *stream, const struct k_shape *s, const void *x, const void *gy, double *part, bool below)
{
    return BY_TYPE(s->type, weigh_parts<float>(stream, s, x, gy, part, below),
                   weigh_parts<bf16>(stream, s, x, gy, part, below));
}

static int weigh_sums(void *stream, const struct k_shape *s, const struct k_grad *g, const double *part)
{
    return launch_one(stream, (size_t)s->c,
                      weigh_sum{part, (float *)g->gx, div_up(s->n * s->points, weigh_rows(s)), s->c, g->acc});
}

extern "C" int k_weigh_weights(void *stream, const struct k_shape *s, const void *x, const struct k_grad *g, void *work)
{
    double *const part = (double *)work;
    const int bad = weigh_all(stream, s, x, g->gy, part, false);
    return bad ? bad : weigh_sums(stream, s, g, part);
}

/* ---- learned slopes -------------------------------------------------------------------------- */

/* to = x where v is above zero, otherwise a x. v: the layer's input; x: this input, or the output's gradient. */
template <class T, int N, class I> struct prelu_op {
    const T *v, *x; const float *a; T *to; int c; bool shared, acc;
    DEVICE void one(I i) const
    {
        const int ch = (int)(i % (I)(c / N)) * N;
        const pack<T, N> side = get<N>(v + (size_t)i * N), from = get<N>(x + (size_t)i * N);
        pack<T, N> y;
        if (acc) y = get<N>(to + (size_t)i * N);
        UNROLL for (int k = 0; k < N; k++) {
            const float f = to_float(from.v[k]);
            give(&y.v[k], to_float(side.v[k]) > 0 ? f : a[shared ? 0 : ch + k] * f, acc);
        }
        put<N>(to + (size_t)i * N, y);
    }
};

template <class T> static int prelu(void *stream, const struct k_prelu *p, const void *v, const struct k_grad *g)
{
    return launch_packs<prelu_op, T>(stream, (size_t)(p->s.n * p->s.points), p->s.c, true, (const T *)v,
                                     (const T *)g->gy, p->a, (T *)g->gx, p->s.c, p->shared, g->acc);
}

extern "C" int k_prelu_back(void *stream, const struct k_prelu *p, const void *x, const struct k_grad *g)
{
    return BY_TYPE(p->s.type, prelu<float>(stream, p, x, g), prelu<bf16>(stream, p, x, g));
}

extern "C" int k_prelu(void *stream, const struct k_prelu *p, const void *x, void *y)
{
    const struct k_grad to = {x, y, false};
    return k_prelu_back(stream, p, x, &to);
}

/* The sum of all parts of all channels, by one block. */
struct slope_sum {
    const double *part; float *ga; int64_t n; bool acc;
    DEVICE void block(const struct where &w) const
    {
        const double sum = block_sum(w, [&](int t) {
            double v = 0;
            for (int64_t i = t; i < n; i += w.threads) v += part[i];
            return v;
        });
        EACH_THREAD(w, t) if (t == 0) give(ga, (float)sum, acc);
    }
};

extern "C" int k_prelu_slopes(void *stream, const struct k_prelu *p, const void *x, const struct k_grad *g, void *work)
{
    const struct k_shape *const s = &p->s;
    double *const part = (double *)work;
    const int bad = weigh_all(stream, s, x, g->gy, part, true);
    if (bad || !p->shared) return bad ? bad : weigh_sums(stream, s, g, part);
    return launch(stream, 1, THREADS,
                  slope_sum{part, (float *)g->gx, div_up(s->n * s->points, weigh_rows(s)) * s->c, g->acc});
}

/* ---- stochastic depth ------------------------------------------------------------------------ */

/* One draw a sample: the first of the sample's first four words. */
template <class T, int N, class I> struct depth_op {
    const T *x; T *y; const struct be_block *block; const int64_t *sample;
    int64_t packs; uint32_t limit, layer; float keep; bool acc;
    DEVICE void one(I i) const
    {
        uint32_t v[4];
        dropout_words(block, layer, sample[i / (I)packs], 0, v);
        const float by = v[0] < limit ? 0.0f : keep;
        const pack<T, N> u = get<N>(x + (size_t)i * N);
        pack<T, N> to;
        if (acc) to = get<N>(y + (size_t)i * N);
        UNROLL for (int k = 0; k < N; k++) give(&to.v[k], by == 0 ? 0.0f : to_float(u.v[k]) * by, acc);
        put<N>(y + (size_t)i * N, to);
    }
};

/* Over a sample's elements, in packs if no pack extends into the next sample. */
template <class T> static int depth(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    const int64_t each = m->shape.points * m->shape.c;
    const int per = each % WIDE<T> == 0 && short_count((size_t)(m->shape.n * each)) ? WIDE<T> : 1;
    const uint32_t limit = (uint32_t)(m->p * 4294967296.0);
    const float keep = (float)(1 / (1 - m->p));
    return launch_packs<depth_op, T>(stream, (size_t)m->shape.n, (int)each, per > 1, (const T *)x, (T *)y, m->block,
                                     m->sample, each / per, limit, m->layer, keep, acc);
}

extern "C" int k_depth(void *stream, const struct k_mask *m, const void *x, void *y, bool acc)
{
    return BY_TYPE(m->shape.type, depth<float>(stream, m, x, y, acc), depth<bf16>(stream, m, x, y, acc));
}
