/* Pooling, and other changes of the number of points. A thread has a pack of neighbouring channels of one point, and
 * the next thread the next pack: every read and write moves whole lines, and the caches serve overlapping windows.
 * Backward gathers: each input adds the windows that contain it, in the order of the outputs, so no two threads add to
 * one value. */
#include <math.h>
#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "model/ops/upsample.h"

struct spot { int64_t n; int p[3], ch; };                /* ch: the first of the pack */

/* Pack i of N channels in [n][d0][d1][d2][c]. */
template <int N, class I> DEVICE struct spot spot_of(I i, const int *d, int c)
{
    struct spot s;
    const I packs = (I)(c / N);
    s.ch = (int)(i % packs) * N; i /= packs;
    s.p[2] = (int)(i % (I)d[2]); i /= (I)d[2];
    s.p[1] = (int)(i % (I)d[1]); i /= (I)d[1];
    s.p[0] = (int)(i % (I)d[0]);
    s.n = (int64_t)(i / (I)d[0]);
    return s;
}

DEVICE int64_t offset_of(const struct spot *s, const int *p, const int *d, int c)
{
    return (((s->n * d[0] + p[0]) * d[1] + p[1]) * d[2] + p[2]) * c + s->ch;
}

/* Calls f(index in the window, offset in the input, -1: in the padding) for the window of output s. */
template <class F> DEVICE void window_walk(const struct k_window &w, const struct spot *s, F f)
{
    int q = 0, p[3];
    for (int i = 0; i < w.kernel[0]; i++) {
        p[0] = s->p[0] * w.stride[0] - w.pad[0] + i;
        for (int j = 0; j < w.kernel[1]; j++) {
            p[1] = s->p[1] * w.stride[1] - w.pad[1] + j;
            for (int k = 0; k < w.kernel[2]; k++, q++) {
                p[2] = s->p[2] * w.stride[2] - w.pad[2] + k;
                bool in = p[0] >= 0 && p[0] < w.in[0] && p[1] >= 0 && p[1] < w.in[1] && p[2] >= 0 && p[2] < w.in[2];
                f(q, in ? offset_of(s, p, w.in, w.c) : (int64_t)-1);
            }
        }
    }
}

/* First and last output in one dimension whose window contains input x. */
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

/* Calls f(offset of an output, index of input s in its window) for all outputs whose window contains s, ascending. */
template <class F> DEVICE void holders_walk(const struct k_window &w, const struct spot *s, F f)
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
                f(offset_of(s, o, w.out, w.c), q);
            }
}

/* y = v, or y += v, a pack. */
template <class T, int N> DEVICE void give_pack(T *y, const float (&v)[N], bool acc)
{
    pack<T, N> out;
    if (acc) out = get<N>(y);
    UNROLL for (int k = 0; k < N; k++) give(&out.v[k], v[k], acc);
    put<N>(y, out);
}

/* ---- maximum --------------------------------------------------------------------------------- */

template <class T, int N, class I> struct max_pool_op {
    const T *x; T *y; uint8_t *where; struct k_window w;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.out, w.c);
        float best[N];
        int best_at[N];
        UNROLL for (int k = 0; k < N; k++) best[k] = -INFINITY, best_at[k] = -1;
        window_walk(w, &s, [&](int q, int64_t at) {
            if (at < 0) return;
            const pack<T, N> v = get<N>(x + at);
            UNROLL for (int k = 0; k < N; k++) {
                float f = to_float(v.v[k]);
                if (best_at[k] < 0 || f > best[k] || f != f) best[k] = f, best_at[k] = q;
            }
        });
        pack<T, N> out;
        pack<uint8_t, N> from;
        UNROLL for (int k = 0; k < N; k++) {
            from_float(&out.v[k], best[k]);
            from.v[k] = (uint8_t)best_at[k];
        }
        put<N>(y + (size_t)i * N, out);
        if (where) put<N>(where + (size_t)i * N, from);
    }
};

template <class T, int N, class I> struct max_pool_back_op {
    const T *gy; T *gx; const uint8_t *where; struct k_window w; bool acc;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.in, w.c);
        float sum[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        holders_walk(w, &s, [&](int64_t at, int q) {
            const pack<uint8_t, N> from = get<N>(where + at);
            const pack<T, N> g = get<N>(gy + at);
            UNROLL for (int k = 0; k < N; k++) if (from.v[k] == q) sum[k] += to_float(g.v[k]);
        });
        give_pack(gx + (size_t)i * N, sum, acc);
    }
};

/* ---- mean ------------------------------------------------------------------------------------ */

template <class T, int N> DEVICE void add_pack(const T *x, double *sum)
{
    const pack<T, N> v = get<N>(x);
    UNROLL for (int k = 0; k < N; k++) sum[k] += to_float(v.v[k]);
}

template <class T, int N, class I> struct avg_pool_op {
    const T *x; T *y; struct k_window w;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.out, w.c);
        double sum[N];
        float mean[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        window_walk(w, &s, [&](int, int64_t at) { if (at >= 0) add_pack<T, N>(x + at, sum); });
        UNROLL for (int k = 0; k < N; k++) mean[k] = (float)(sum[k] / (w.kernel[0] * w.kernel[1] * w.kernel[2]));
        give_pack(y + (size_t)i * N, mean, false);
    }
};

template <class T, int N, class I> struct avg_pool_back_op {
    const T *gy; T *gx; struct k_window w; bool acc;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.in, w.c);
        double sum[N];
        float mean[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        holders_walk(w, &s, [&](int64_t at, int) { add_pack<T, N>(gy + at, sum); });
        UNROLL for (int k = 0; k < N; k++) mean[k] = (float)(sum[k] / (w.kernel[0] * w.kernel[1] * w.kernel[2]));
        give_pack(gx + (size_t)i * N, mean, acc);
    }
};

/* Inputs of output o of an adaptive pooling: from o in / out to below (o + 1) in / out, rounded outwards. */
DEVICE int64_t adaptive_from(int64_t o, int64_t in, int64_t out) { return o * in / out; }
DEVICE int64_t adaptive_to(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

template <class T, int N, class I> struct adaptive_op {
    const T *x; T *y; struct k_adaptive w;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.out, w.c);
        double sum[N], size = 1;
        float mean[N];
        int from[3], to[3], p[3];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        for (int d = 0; d < 3; d++) {
            from[d] = (int)adaptive_from(s.p[d], w.in[d], w.out[d]);
            to[d] = (int)adaptive_to(s.p[d], w.in[d], w.out[d]);
            size *= to[d] - from[d];
        }
        for (p[0] = from[0]; p[0] < to[0]; p[0]++)
            for (p[1] = from[1]; p[1] < to[1]; p[1]++)
                for (p[2] = from[2]; p[2] < to[2]; p[2]++) add_pack<T, N>(x + offset_of(&s, p, w.in, w.c), sum);
        UNROLL for (int k = 0; k < N; k++) mean[k] = (float)(sum[k] / size);
        give_pack(y + (size_t)i * N, mean, false);
    }
};

/* An input gathers from the outputs o that read it, x out / in - 1 < o < (x + 1) out / in, each with its own size. */
template <class T, int N, class I> struct adaptive_back_op {
    const T *gy; T *gx; struct k_adaptive w; bool acc;
    DEVICE double size_of(int d, int64_t o) const
    {
        return (double)(adaptive_to(o, w.in[d], w.out[d]) - adaptive_from(o, w.in[d], w.out[d]));
    }
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.in, w.c);
        int from[3], to[3], o[3];
        float sum[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        for (int d = 0; d < 3; d++) {
            from[d] = (int)((int64_t)s.p[d] * w.out[d] / w.in[d]);
            to[d] = (int)((((int64_t)s.p[d] + 1) * w.out[d] + w.in[d] - 1) / w.in[d]);
        }
        for (o[0] = from[0]; o[0] < to[0]; o[0]++)
            for (o[1] = from[1]; o[1] < to[1]; o[1]++)
                for (o[2] = from[2]; o[2] < to[2]; o[2]++) {
                    const pack<T, N> g = get<N>(gy + offset_of(&s, o, w.out, w.c));
                    const double size = size_of(0, o[0]) * size_of(1, o[1]) * size_of(2, o[2]);
                    UNROLL for (int k = 0; k < N; k++) sum[k] += (float)(to_float(g.v[k]) / size);
                }
        give_pack(gx + (size_t)i * N, sum, acc);
    }
};

/* ---- upsample -------------------------------------------------------------------------------- */

struct resized { struct upsample u; int in[3], out[3], c; };

/* Weighs the two neighbours in each dimension; if the first one's share is 1, the other does not count. */
template <class T, int N, class I> struct upsample_op {
    const T *x; T *y; struct resized w;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.out, w.c);
        struct upsample_tap t[3];
        float sum[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        for (int d = 0; d < 3; d++) t[d] = upsample_tap(&w.u, d, s.p[d]);
        for (int corner = 0; corner < 8; corner++) {
            float share = 1;
            int p[3];
            for (int d = 0; d < 3; d++) {
                const bool next = corner >> (2 - d) & 1;
                share *= next ? t[d].part : 1 - t[d].part;
                p[d] = (int)(next ? t[d].next : t[d].at);
            }
            if (!(share > 0)) continue;
            const pack<T, N> v = get<N>(x + offset_of(&s, p, w.in, w.c));
            UNROLL for (int k = 0; k < N; k++) sum[k] += share * to_float(v.v[k]);
        }
        give_pack(y + (size_t)i * N, sum, false);
    }
};

template <class T, int N, class I> struct upsample_back_op {
    const T *gy; T *gx; struct resized w; bool acc;
    DEVICE void one(I i) const
    {
        const struct spot s = spot_of<N>(i, w.in, w.c);
        int64_t from[3], to[3];
        int o[3];
        float sum[N];
        UNROLL for (int k = 0; k < N; k++) sum[k] = 0;
        for (int d = 0; d < 3; d++) upsample_readers(&w.u, d, s.p[d], &from[d], &to[d]);
        for (o[0] = (int)from[0]; o[0] <= to[0]; o[0]++) {
            const float a = upsample_share(&w.u, 0, o[0], s.p[0]);
            for (o[1] = (int)from[1]; a > 0 && o[1] <= to[1]; o[1]++) {
                const float b = a * upsample_share(&w.u, 1, o[1], s.p[1]);
                for (o[2] = (int)from[2]; b > 0 && o[2] <= to[2]; o[2]++) {
                    const float share = b * upsample_share(&w.u, 2, o[2], s.p[2]);
                    if (!(share > 0)) continue;
                    const pack<T, N> g = get<N>(gy + offset_of(&s, o, w.out, w.c));
                    UNROLL for (int k = 0; k < N; k++) sum[k] += share * to_float(g.v[k]);
                }
            }
        }
        give_pack(gx + (size_t)i * N, sum, acc);
    }
};

/* One thread a channel of a sample: ResNet's last plane has few points, and packs would leave most of a GPU idle. */
template <class T, class I> struct mean_op {
    const T *x; T *y; int64_t points; int c;
    DEVICE void one(I i) const
    {
        const T *from = x + (int64_t)(i / (I)c) * points * c + i % (I)c;
        double sum = 0;
        for (int64_t p = 0; p < points; p++) sum += to_float(from[p * c]);
        from_float(&y[i], (float)(sum / (double)points));
    }
};

template <class T, int N, class I> struct mean_back_op {
    const T *gy; T *gx; int64_t points; int c; bool acc;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N), n = i / ((I)points * packs);
        const pack<T, N> g = get<N>(gy + (int64_t)n * c + (int)(i % packs) * N);
        float mean[N];
        UNROLL for (int k = 0; k < N; k++) mean[k] = (float)(to_float(g.v[k]) / (double)points);
        give_pack(gx + (size_t)i * N, mean, acc);
    }
};

/* ---- launchers ------------------------------------------------------------------------------- */

/* points of all samples, d of them in each dimension */
static size_t points_of(const struct k_window *w, const int *d)
{
    return (size_t)w->n * (size_t)d[0] * (size_t)d[1] * (size_t)d[2];
}

template <class T> static int max_pool(void *stream, const struct k_window *w, const void *x, void *y, uint8_t *where)
{
    return launch_packs<max_pool_op, T>(stream, points_of(w, w->out), w->c, true, (const T *)x, (T *)y, where, *w);
}

template <class T>
static int max_pool_back(void *stream, const struct k_window *w, const uint8_t *where, const struct k_grad *g)
{
    return launch_packs<max_pool_back_op, T>(stream, points_of(w, w->in), w->c, true, (const T *)g->gy, (T *)g->gx,
                                             where, *w, g->acc);
}

template <class T> static int avg_pool(void *stream, const struct k_window *w, const void *x, void *y)
{
    return launch_packs<avg_pool_op, T>(stream, points_of(w, w->out), w->c, true, (const T *)x, (T *)y, *w);
}

template <class T> static int avg_pool_back(void *stream, const struct k_window *w, const struct k_grad *g)
{
    return launch_packs<avg_pool_back_op, T>(stream, points_of(w, w->in), w->c, true, (const T *)g->gy, (T *)g->gx, *w,
                                             g->acc);
}

static size_t adaptive_points(const struct k_adaptive *w, const int *d)
{
    return (size_t)w->n * (size_t)d[0] * (size_t)d[1] * (size_t)d[2];
}

template <class T> static int adaptive(void *stream, const struct k_adaptive *w, const void *x, void *y)
{
    return launch_packs<adaptive_op, T>(stream, adaptive_points(w, w->out), w->c, true, (const T *)x, (T *)y, *w);
}

template <class T> static int adaptive_back(void *stream, const struct k_adaptive *w, const struct k_grad *g)
{
    return launch_packs<adaptive_back_op, T>(stream, adaptive_points(w, w->in), w->c, true, (const T *)g->gy,
                                             (T *)g->gx, *w, g->acc);
}

static struct resized resized_of(const struct k_shape *s, const struct upsample *u)
{
    struct resized w = {*u, {0, 0, 0}, {0, 0, 0}, s->c};
    for (int d = 0; d < 3; d++) {
        w.in[d] = (int)u->in[d];
        w.out[d] = (int)u->out[d];
    }
    return w;
}

static size_t resized_points(const struct k_shape *s, const int64_t *d)
{
    return (size_t)s->n * (size_t)d[0] * (size_t)d[1] * (size_t)d[2];
}

template <class T>
static int resize(void *stream, const struct k_shape *s, const struct upsample *u, const void *x, void *y)
{
    return launch_packs<upsample_op, T>(stream, resized_points(s, u->out), s->c, true, (const T *)x, (T *)y,
                                        resized_of(s, u));
}

template <class T>
static int resize_back(void *stream, const struct k_shape *s, const struct upsample *u, const struct k_grad *g)
{
    return launch_packs<upsample_back_op, T>(stream, resized_points(s, u->in), s->c, true, (const T *)g->gy,
                                             (T *)g->gx, resized_of(s, u), g->acc);
}

template <class T> static int mean(void *stream, const struct k_shape *s, const void *x, void *y)
{
    const size_t all = (size_t)s->n * (size_t)s->c;
    const mean_op<T, size_t> op = {(const T *)x, (T *)y, s->points, s->c};
    if (!short_count(all)) return launch_one<size_t>(stream, all, op);
    return launch_one<uint32_t>(stream, all, mean_op<T, uint32_t>{op.x, op.y, op.points, op.c});
}

template <class T> static int mean_back(void *stream, const struct k_shape *s, const struct k_grad *g)
{
    return launch_packs<mean_back_op, T>(stream, (size_t)(s->n * s->points), s->c, true, (const T *)g->gy, (T *)g->gx,
                                         s->points, s->c, g->acc);
}

extern "C" int k_max_pool(void *stream, const struct k_window *w, const void *x, void *y, uint8_t *where)
{
    return BY_TYPE(w->type, max_pool<float>(stream, w, x, y, where), max_pool<bf16>(stream, w, x, y, where));
}

extern "C" int k_max_pool_back(void *stream, const struct k_window *w, const uint8_t *where, const struct k_grad *g)
{
    return BY_TYPE(w->type, max_pool_back<float>(stream, w, where, g), max_pool_back<bf16>(stream, w, where, g));
}

extern "C" int k_avg_pool(void *stream, const struct k_window *w, const void *x, void *y)
{
    return BY_TYPE(w->type, avg_pool<float>(stream, w, x, y), avg_pool<bf16>(stream, w, x, y));
}

extern "C" int k_avg_pool_back(void *stream, const struct k_window *w, const struct k_grad *g)
{
    return BY_TYPE(w->type, avg_pool_back<float>(stream, w, g), avg_pool_back<bf16>(stream, w, g));
}

extern "C" int k_adaptive_pool(void *stream, const struct k_adaptive *w, const void *x, void *y)
{
    return BY_TYPE(w->type, adaptive<float>(stream, w, x, y), adaptive<bf16>(stream, w, x, y));
}

extern "C" int k_adaptive_pool_back(void *stream, const struct k_adaptive *w, const struct k_grad *g)
{
    return BY_TYPE(w->type, adaptive_back<float>(stream, w, g), adaptive_back<bf16>(stream, w, g));
}

extern "C" int k_upsample(void *stream, const struct k_shape *s, const struct upsample *u, const void *x, void *y)
{
    return BY_TYPE(s->type, resize<float>(stream, s, u, x, y), resize<bf16>(stream, s, u, x, y));
}

extern "C" int k_upsample_back(void *stream, const struct k_shape *s, const struct upsample *u, const struct k_grad *g)
{
    return BY_TYPE(s->type, resize_back<float>(stream, s, u, g), resize_back<bf16>(stream, s, u, g));
}

extern "C" int k_mean(void *stream, const struct k_shape *s, const void *x, void *y)
{
    return BY_TYPE(s->type, mean<float>(stream, s, x, y), mean<bf16>(stream, s, x, y));
}

extern "C" int k_mean_back(void *stream, const struct k_shape *s, const struct k_grad *g)
{
    return BY_TYPE(s->type, mean_back<float>(stream, s, g), mean_back<bf16>(stream, s, g));
}
