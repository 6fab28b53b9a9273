/* Pooling. Neighbouring threads have neighbouring channels, so every read and write moves whole lines; windows overlap in the caches. Backward gathers:
 * each input looks at the windows that hold it, in the order of the outputs, so nothing is added by two threads. */
#include <math.h>
#include "kernels/kernels.h"
#include "kernels/launch.h"

struct spot { int64_t n; int p[3], ch; };

/* Element i of [n][d0][d1][d2][c]. */
DEVICE struct spot spot_of(size_t i, const int *d, int c)
{
    struct spot s;
    s.ch = (int)(i % (size_t)c); i /= (size_t)c;
    s.p[2] = (int)(i % (size_t)d[2]); i /= (size_t)d[2];
    s.p[1] = (int)(i % (size_t)d[1]); i /= (size_t)d[1];
    s.p[0] = (int)(i % (size_t)d[0]);
    s.n = (int64_t)(i / (size_t)d[0]);
    return s;
}

DEVICE int64_t offset_of(const struct spot *s, const int *p, const int *d, int c)
{
    return (((s->n * d[0] + p[0]) * d[1] + p[1]) * d[2] + p[2]) * c + s->ch;
}

/* Calls f(index within the window, offset in the input, -1: in the padding) for the window of output s. */
template <class F> DEVICE void window_walk(const struct k_window &w, const struct spot *s, int c, F f)
{
    int q = 0, p[3];
    for (int i = 0; i < w.kernel[0]; i++) {
        p[0] = s->p[0] * w.stride[0] - w.pad[0] + i;
        for (int j = 0; j < w.kernel[1]; j++) {
            p[1] = s->p[1] * w.stride[1] - w.pad[1] + j;
            for (int k = 0; k < w.kernel[2]; k++, q++) {
                p[2] = s->p[2] * w.stride[2] - w.pad[2] + k;
                bool in = p[0] >= 0 && p[0] < w.in[0] && p[1] >= 0 && p[1] < w.in[1] && p[2] >= 0 && p[2] < w.in[2];
                f(q, in ? offset_of(s, p, w.in, c) : (int64_t)-1);
            }
        }
    }
}

/* First and last output in one dimension whose window holds input x. */
DEVICE int first_holding(int x, int kernel, int stride, int pad)
{
    int least = x + pad - kernel + 1;
    return least <= 0 ? 0 : (least + stride - 1) / stride;
}
DEVICE int last_holding(int x, int stride, int pad, int out)
{
    int last = (x + pad) / stride;
    return last < out ? last : out - 1;
}

/* Calls f(offset of an output, index of input s within its window) for all outputs whose window holds it, ascending. */
template <class F> DEVICE void holders_walk(const struct k_window &w, const struct spot *s, int c, F f)
{
    int o[3], from[3], to[3];
    for (int d = 0; d < 3; d++) {
        from[d] = first_holding(s->p[d], w.kernel[d], w.stride[d], w.pad[d]);
        to[d] = last_holding(s->p[d], w.stride[d], w.pad[d], w.out[d]);
    }
    for (o[0] = from[0]; o[0] <= to[0]; o[0]++)
        for (o[1] = from[1]; o[1] <= to[1]; o[1]++)
            for (o[2] = from[2]; o[2] <= to[2]; o[2]++) {
                int q = 0;
                for (int d = 0; d < 3; d++) q = q * w.kernel[d] + s->p[d] + w.pad[d] - o[d] * w.stride[d];
                f(offset_of(s, o, w.out, c), q);
            }
}

/* ---- maximum ---------------------------------------------------------------------------------------------------------------------------- */

template <class T> struct max_pool_op {
    const T *x; T *y; uint8_t *where; struct k_window w; int c;
    DEVICE void one(size_t i) const
    {
        struct spot s = spot_of(i, w.out, c);
        float best = -INFINITY;
        int best_at = -1;
        window_walk(w, &s, c, [&](int q, int64_t at) {
            if (at < 0) return;
            float v = to_float(x[at]);
            if (best_at < 0 || v > best || v != v) { best = v; best_at = q; }
        });
        from_float(&y[i], best);
        if (where) where[i] = (uint8_t)best_at;
    }
};

template <class T> struct max_pool_back_op {
    const T *gy; T *gx; const uint8_t *where; struct k_window w; int c; bool acc;
    DEVICE void one(size_t i) const
    {
        struct spot s = spot_of(i, w.in, c);
        float sum = 0;
        holders_walk(w, &s, c, [&](int64_t at, int q) { if (where[at] == q) sum += to_float(gy[at]); });
        give(&gx[i], sum, acc);
    }
};

/* ---- mean --------------------------------------------------------------------------------------------------------------------------------- */

template <class T> struct avg_pool_op {
    const T *x; T *y; struct k_window w; int c;
    DEVICE void one(size_t i) const
    {
        struct spot s = spot_of(i, w.out, c);
        double sum = 0;
        window_walk(w, &s, c, [&](int, int64_t at) { if (at >= 0) sum += to_float(x[at]); });
        from_float(&y[i], (float)(sum / (w.kernel[0] * w.kernel[1] * w.kernel[2])));
    }
};

template <class T> struct avg_pool_back_op {
    const T *gy; T *gx; struct k_window w; int c; bool acc;
    DEVICE void one(size_t i) const
    {
        struct spot s = spot_of(i, w.in, c);
        double sum = 0;
        holders_walk(w, &s, c, [&](int64_t at, int) { sum += to_float(gy[at]); });
        give(&gx[i], (float)(sum / (w.kernel[0] * w.kernel[1] * w.kernel[2])), acc);
    }
};

/* A thread a channel of a sample: ResNet's last plane has few points. */
template <class T> struct mean_op {
    const T *x; T *y; int64_t points; int c;
    DEVICE void one(size_t i) const
    {
        const T *from = x + (int64_t)(i / (size_t)c) * points * c + i % (size_t)c;
        double sum = 0;
        for (int64_t p = 0; p < points; p++) sum += to_float(from[p * c]);
        from_float(&y[i], (float)(sum / (double)points));
    }
};

template <class T> struct mean_back_op {
    const T *gy; T *gx; int64_t points; int c; bool acc;
    DEVICE void one(size_t i) const
    {
        size_t n = i / ((size_t)points * (size_t)c), ch = i % (size_t)c;
        give(&gx[i], (float)(to_float(gy[n * (size_t)c + ch]) / (double)points), acc);
    }
};

static size_t volume(const int *d) { return (size_t)d[0] * (size_t)d[1] * (size_t)d[2]; }

extern "C" int k_max_pool(void *stream, enum ktype type, int64_t n, int c, const struct k_window *w, const void *x, void *y, uint8_t *where)
{
    size_t all = (size_t)n * (size_t)c * volume(w->out);
    return BY_TYPE(type, launch_one(stream, all, max_pool_op<float>{(const float *)x, (float *)y, where, *w, c}),
                   launch_one(stream, all, max_pool_op<bf16>{(const bf16 *)x, (bf16 *)y, where, *w, c}));
}

extern "C" int k_max_pool_back(void *stream, enum ktype type, int64_t n, int c, const struct k_window *w, const uint8_t *where, const void *gy, void *gx,
                               bool acc)
{
    size_t all = (size_t)n * (size_t)c * volume(w->in);
    return BY_TYPE(type, launch_one(stream, all, max_pool_back_op<float>{(const float *)gy, (float *)gx, where, *w, c, acc}),
                   launch_one(stream, all, max_pool_back_op<bf16>{(const bf16 *)gy, (bf16 *)gx, where, *w, c, acc}));
}

extern "C" int k_avg_pool(void *stream, enum ktype type, int64_t n, int c, const struct k_window *w, const void *x, void *y)
{
    size_t all = (size_t)n * (size_t)c * volume(w->out);
    return BY_TYPE(type, launch_one(stream, all, avg_pool_op<float>{(const float *)x, (float *)y, *w, c}),
                   launch_one(stream, all, avg_pool_op<bf16>{(const bf16 *)x, (bf16 *)y, *w, c}));
}

extern "C" int k_avg_pool_back(void *stream, enum ktype type, int64_t n, int c, const struct k_window *w, const void *gy, void *gx, bool acc)
{
    size_t all = (size_t)n * (size_t)c * volume(w->in);
    return BY_TYPE(type, launch_one(stream, all, avg_pool_back_op<float>{(const float *)gy, (float *)gx, *w, c, acc}),
                   launch_one(stream, all, avg_pool_back_op<bf16>{(const bf16 *)gy, (bf16 *)gx, *w, c, acc}));
}

extern "C" int k_mean(void *stream, enum ktype type, int64_t n, int64_t points, int c, const void *x, void *y)
{
    size_t all = (size_t)n * (size_t)c;
    return BY_TYPE(type, launch_one(stream, all, mean_op<float>{(const float *)x, (float *)y, points, c}),
                   launch_one(stream, all, mean_op<bf16>{(const bf16 *)x, (bf16 *)y, points, c}));
}

extern "C" int k_mean_back(void *stream, enum ktype type, int64_t n, int64_t points, int c, const void *gy, void *gx, bool acc)
{
    size_t all = (size_t)(n * points) * (size_t)c;
    return BY_TYPE(type, launch_one(stream, all, mean_back_op<float>{(const float *)gy, (float *)gx, points, c, acc}),
                   launch_one(stream, all, mean_back_op<bf16>{(const bf16 *)gy, (bf16 *)gx, points, c, acc}));
}
