/* Slices of tensors along a dimension, and weights for positions: put before the input's positions, or added to
 * them. */
#include "kernels/kernels.h"
#include "kernels/launch.h"

template <class T> struct slice_back {
    struct k_slice s; const T *gy; T *gx; bool acc;
    DEVICE void one(size_t i) const
    {
        const int64_t row = (int64_t)(i / (size_t)s.width), at = (int64_t)(i % (size_t)s.width) - s.first;
        const bool in = at >= 0 && at < s.c;
        if (in || !acc) give(&gx[i], in ? to_float(gy[row * s.c + at]) : 0.0f, acc);
    }
};

template <class T> static int slice_back_run(void *stream, const struct k_slice *s, const struct k_grad *g)
{
    return launch_one(stream, (size_t)s->rows * (size_t)s->width,
                      slice_back<T>{*s, (const T *)g->gy, (T *)g->gx, g->acc});
}

extern "C" int k_slice_back(void *stream, const struct k_slice *s, const struct k_grad *g)
{
    return BY_TYPE(s->type, slice_back_run<float>(stream, s, g), slice_back_run<bf16>(stream, s, g));
}

template <class T> struct learned_op {
    struct k_slice s; const float *weight; const T *x; T *y;
    DEVICE void one(size_t i) const
    {
        const int64_t row = (int64_t)(i / (size_t)s.c), at = (int64_t)(i % (size_t)s.c);
        from_float(&y[row * s.width + s.first + at], weight[at] + (x ? to_float(x[i]) : 0.0f));
    }
};

template <class T>
static int learned(void *stream, const struct k_slice *s, const float *weight, const void *x, void *y)
{
    return launch_one(stream, (size_t)s->rows * (size_t)s->c, learned_op<T>{*s, weight, (const T *)x, (T *)y});
}

extern "C" int k_learned(void *stream, const struct k_slice *s, const float *weight, const void *x, void *y)
{
    return BY_TYPE(s->type, learned<float>(stream, s, weight, x, y), learned<bf16>(stream, s, weight, x, y));
}

template <class T> struct learned_sum {
    struct k_slice s; const T *gy; float *gw; bool acc;
    DEVICE void one(size_t i) const
    {
        double sum = 0;
        for (int64_t row = 0; row < s.rows; row++) sum += to_float(gy[row * s.width + s.first + (int64_t)i]);
        give(&gw[i], (float)sum, acc);
    }
};

template <class T>
static int learned_weights(void *stream, const struct k_slice *s, const void *gy, float *gw, bool acc)
{
    return launch_one(stream, (size_t)s->c, learned_sum<T>{*s, (const T *)gy, gw, acc});
}

extern "C" int k_learned_weights(void *stream, const struct k_slice *s, const void *gy, float *gw, bool acc)
{
    return BY_TYPE(s->type, learned_weights<float>(stream, s, gy, gw, acc),
                   learned_weights<bf16>(stream, s, gy, gw, acc));
}
