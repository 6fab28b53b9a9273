/* Losses: one block a sample, in double like the reference. Backward computes the softmax again, which is cheaper than
 * storing it. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "model/op.h"

/* All samples; at(n) is sample n. */
template <class T> struct outputs {
    const T *x; const int64_t *cls; const float *vec; int count;
    double keep, spread;                                 /* smoothing: factor of a target, and summand */
    DEVICE outputs at(int n) const
    {
        const int64_t first = (int64_t)n * count;
        return {x + first, cls ? cls + n : NULL, vec ? vec + first : NULL, count, keep, spread};
    }
    DEVICE double out(int i) const { return to_float(x[i]); }
    DEVICE double target(int i) const { return keep * (cls ? *cls == i : vec[i]) + spread; }
};

/* sum and maximum of f(i) over every output */
template <class F> DEVICE double sum_over(const struct where &w, int count, F f)
{
    return block_sum(w, [&](int t) {
        double v = 0;
        for (int i = t; i < count; i += w.threads) v += f(i);
        return v;
    });
}
template <class F> DEVICE double max_over(const struct where &w, int count, F f)
{
    return block_max(w, [&](int t) {
        double v = -INFINITY;
        for (int i = t; i < count; i += w.threads) {
            double u = f(i);
            if (u > v) v = u;
        }
        return v;
    });
}

/* log sum exp x */
template <class T> DEVICE double log_sum(const struct where &w, const outputs<T> &s)
{
    double max = max_over(w, s.count, [&](int i) { return s.out(i); });
    return max + log(sum_over(w, s.count, [&](int i) { return exp(s.out(i) - max); }));
}

/* Is the right class the first, and is it among the first five? Outputs that are larger, or equal with a smaller index,
 * precede it. The right class of a vector is its first maximum. */
template <class T> DEVICE void hits(const struct where &w, const outputs<T> &s, double *loss)
{
    int64_t right = s.cls ? *s.cls : 0;
    if (s.vec) {
        double top = max_over(w, s.count, [&](int i) { return (double)s.vec[i]; });
        double first = -max_over(w, s.count, [&](int i) { return s.vec[i] == top ? -(double)i : -INFINITY; });
        right = s.vec[0] != s.vec[0] || first >= s.count ? 0 : (int64_t)first;
    }
    const bool known = right >= 0 && right < s.count;
    const double x = known ? s.out((int)right) : 0;
    double before = sum_over(w, s.count, [&](int i) {
        double v = s.out(i);
        return v > x || (v == x && i < right) || x != x ? 1.0 : 0.0;
    });
    EACH_THREAD(w, t) {
        if (t) continue;
        loss[1] = known && before < 1;
        loss[2] = known && before < 5;
    }
}

template <class T> struct cross_entropy {
    outputs<T> all; double *loss;
    DEVICE void block(const struct where &w) const
    {
        const outputs<T> s = all.at(w.block);
        double *const to = loss + (int64_t)3 * w.block, lse = log_sum(w, s);
        double sum = sum_over(w, s.count, [&](int i) {
            double p = s.target(i);
            return p != 0 ? p * (s.out(i) - lse) : 0.0;
        });
        EACH_THREAD(w, t) if (t == 0) to[0] = 0 - sum;
        hits(w, s, to);
    }
};

template <class T> struct cross_entropy_back {
    outputs<T> all; const struct be_block *step; T *gx; bool acc;
    DEVICE void block(const struct where &w) const
    {
        const outputs<T> s = all.at(w.block);
        double lse = log_sum(w, s), mass = sum_over(w, s.count, [&](int i) { return s.target(i); });
        EACH_THREAD(w, t) {
            for (int i = t; i < s.count; i += w.threads)
                give(&gx[(int64_t)w.block * s.count + i],
                     (float)((exp(s.out(i) - lse) * mass - s.target(i)) * step->inv_weight), acc);
        }
    }
};

template <class T> struct mse {
    outputs<T> all; double *loss;
    DEVICE void block(const struct where &w) const
    {
        const outputs<T> s = all.at(w.block);
        double *const to = loss + (int64_t)3 * w.block;
        double sum = sum_over(w, s.count, [&](int i) {
            double d = s.out(i) - s.target(i);
            return d * d;
        });
        EACH_THREAD(w, t) if (t == 0) to[0] = sum / (double)s.count;
        hits(w, s, to);
    }
};

template <class T> struct absolute_error {
    outputs<T> all; double *error;
    DEVICE void block(const struct where &w) const
    {
        const outputs<T> s = all.at(w.block);
        double sum = sum_over(w, s.count, [&](int i) { return fabs(s.out(i) - s.target(i)); });
        EACH_THREAD(w, t) if (t == 0) error[w.block] = sum / (double)s.count;
    }
};

template <class T> struct mse_back_op {
    outputs<T> all; const struct be_block *step; T *gx; bool acc;
    DEVICE void one(size_t at) const
    {
        const outputs<T> s = all.at((int)(at / (size_t)all.count));
        const int i = (int)(at % (size_t)all.count);
        give(&gx[at], (float)(2 * (s.out(i) - s.target(i)) / (double)s.count * step->inv_weight), acc);
    }
};

template <class T> static outputs<T> outputs_of(const struct k_loss *k, const void *x)
{
    return {(const T *)x, k->cls, k->vec, k->count, 1 - k->smoothing, k->smoothing / k->count};
}

extern "C" int k_cross_entropy(void *stream, const struct k_loss *k, const void *x, double *loss)
{
    return BY_TYPE(k->type, launch(stream, k->n, THREADS, cross_entropy<float>{outputs_of<float>(k, x), loss}),
                   launch(stream, k->n, THREADS, cross_entropy<bf16>{outputs_of<bf16>(k, x), loss}));
}

extern "C" int k_cross_entropy_back(void *stream, const struct k_loss *k, const struct be_block *block, const void *x,
                                    void *gx, bool acc)
{
    return BY_TYPE(
        k->type,
        launch(stream, k->n, THREADS, cross_entropy_back<float>{outputs_of<float>(k, x), block, (float *)gx, acc}),
        launch(stream, k->n, THREADS, cross_entropy_back<bf16>{outputs_of<bf16>(k, x), block, (bf16 *)gx, acc}));
}

extern "C" int k_mse(void *stream, const struct k_loss *k, const void *x, double *loss)
{
    return BY_TYPE(k->type, launch(stream, k->n, THREADS, mse<float>{outputs_of<float>(k, x), loss}),
                   launch(stream, k->n, THREADS, mse<bf16>{outputs_of<bf16>(k, x), loss}));
}

extern "C" int k_mse_back(void *stream, const struct k_loss *k, const struct be_block *block, const void *x, void *gx,
                          bool acc)
{
    size_t n = (size_t)k->n * (size_t)k->count;
    return BY_TYPE(k->type, launch_one(stream, n, mse_back_op<float>{outputs_of<float>(k, x), block, (float *)gx, acc}),
                   launch_one(stream, n, mse_back_op<bf16>{outputs_of<bf16>(k, x), block, (bf16 *)gx, acc}));
}

extern "C" int k_mean_absolute_error(void *stream, const struct k_loss *k, const void *x, double *error)
{
    return BY_TYPE(k->type, launch(stream, k->n, THREADS, absolute_error<float>{outputs_of<float>(k, x), error}),
                   launch(stream, k->n, THREADS, absolute_error<bf16>{outputs_of<bf16>(k, x), error}));
}
