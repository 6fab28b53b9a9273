/* Group and instance norm over [n][points][c]: of each sample and group of channels. First sums of each channel over
 * parts of the points, which neighbouring threads read together; then a block adds those of a group; then one pass over
 * the values. So the order of all sums depends on the sizes alone. Sums are in double, of differences from a value of
 * the same channel, so a large mean does not make a small variance inexact. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

/* Number of parts of a sample's points, and points of a part: enough parts to keep a GPU busy, within the workspace. */
struct parts { int64_t count, per; };
static struct parts parts_of(const struct k_group_norm *k)
{
    enum { LEAST = 64, ALL = 1 << 19 };
    const int64_t most = ALL / (k->s.n * k->s.c), want = div_up(k->s.points, LEAST);
    const int64_t count = want < most ? want : most < 1 ? 1 : most;
    const int64_t per = div_up(k->s.points, count);
    return {div_up(k->s.points, per), per};
}

/* [n][parts][c][2], then [n][c][2], then [n][groups][2] */
extern "C" size_t k_group_norm_work(const struct k_group_norm *k)
{
    return 2 * sizeof(double) * (size_t)k->s.n * ((size_t)(parts_of(k).count + 1) * (size_t)k->s.c + (size_t)k->groups);
}

/* A channel's first value in a sample: the channel's sums are of differences from it. */
template <class T> DEVICE double first_of(const T *x, int64_t n, int64_t points, int c, int64_t ch)
{
    return to_float(x[n * points * c + ch]);
}

template <class T> struct group_moments {
    const T *x; double *part; int64_t points, parts, per; int c;
    DEVICE void one(size_t i) const
    {
        const int64_t ch = (int64_t)(i % (size_t)c), p = (int64_t)(i / (size_t)c) % parts,
                      n = (int64_t)(i / (size_t)c) / parts, to = (p + 1) * per < points ? (p + 1) * per : points;
        const double shift = first_of(x, n, points, c, ch);
        double sum = 0, sq = 0;
        for (int64_t r = p * per; r < to; r++) {
            const double v = to_float(x[(n * points + r) * c + ch]) - shift;
            sum += v;
            sq += v * v;
        }
        part[2 * i] = sum;
        part[2 * i + 1] = sq;
    }
};

/* One block a sample and group. All differences are converted to differences from the first value of the group's first
 * channel. */
template <class T> struct group_joined {
    struct k_group_norm k; const T *x; const double *part; double *saved; int64_t parts, per;
    template <class F> DEVICE double sum_of(const struct where &w, F f) const
    {
        const int width = k.s.c / k.groups;
        const int64_t n = w.block / k.groups, from = (int64_t)(w.block % k.groups) * width;
        const double base = first_of(x, n, k.s.points, k.s.c, from);
        return block_sum(w, [&](int t) {
            double v = 0;
            for (int64_t i = t; i < parts * width; i += w.threads) {
                const int64_t p = i / width, ch = from + i % width, left = k.s.points - p * per;
                const double *const s = part + 2 * ((n * parts + p) * k.s.c + ch);
                v += f(s, first_of(x, n, k.s.points, k.s.c, ch) - base, (double)(left < per ? left : per));
            }
            return v;
        });
    }
    DEVICE void block(const struct where &w) const
    {
        const int width = k.s.c / k.groups;
        const double count = (double)k.s.points * width,
                     off = sum_of(w, [](const double *s, double d, double n) { return s[0] + n * d; }) / count;
        const double sq = sum_of(w, [=](const double *s, double d, double n) {
            const double e = d - off;                    /* difference from the mean */
            return s[1] + 2 * e * s[0] + n * e * e;
        });
        const double base = first_of(x, w.block / k.groups, k.s.points, k.s.c, (int64_t)(w.block % k.groups) * width),
                     var = sq / count;
        EACH_THREAD(w, t) {
            if (t) continue;
            saved[2 * (int64_t)w.block] = base + off;
            saved[2 * (int64_t)w.block + 1] = 1 / sqrt((var > 0 ? var : var != var ? var : 0) + k.eps);
        }
    }
};

template <class T, int N, class I> struct group_pass {
    struct k_group_norm k; const T *x; T *y; const double *saved;
    DEVICE void one(I i) const
    {
        const I packs = (I)(k.s.c / N);
        const int ch = (int)(i % packs) * N, width = k.s.c / k.groups;
        const int64_t n = (int64_t)(i / packs / (I)k.s.points);
        pack<T, N> v = get<N>(x + (size_t)i * N);
        UNROLL for (int j = 0; j < N; j++) {
            const double *const of = saved + 2 * (n * k.groups + (ch + j) / width);
            const double hat = (to_float(v.v[j]) - of[0]) * of[1];
            from_float(&v.v[j], (float)(hat * (k.weight ? k.weight[ch + j] : 1.0f) + (k.bias ? k.bias[ch + j] : 0.0f)));
        }
        put<N>(y + (size_t)i * N, v);
    }
};

template <class T>
static int group_norm_forward(void *stream, const struct k_group_norm *k, const T *x, T *y, double *saved, double *part)
{
    const struct parts p = parts_of(k);
    const int c = k->s.c;
    int bad = launch_one(stream, (size_t)(k->s.n * p.count * c),
                         group_moments<T>{x, part, k->s.points, p.count, p.per, c});
    if (!bad)
        bad = launch(stream, k->s.n * k->groups, THREADS, group_joined<T>{*k, x, part, saved, p.count, p.per});
    return bad ? bad : launch_packs<group_pass, T>(stream, (size_t)(k->s.n * k->s.points), c, true, *k, x, y,
                                                   (const double *)saved);
}

extern "C" int k_group_norm(void *stream, const struct k_group_norm *k, const void *x, void *y, double *saved,
                            void *work)
{
    double *const part = (double *)work;
    return BY_TYPE(k->s.type, group_norm_forward<float>(stream, k, (const float *)x, (float *)y, saved, part),
                   group_norm_forward<bf16>(stream, k, (const bf16 *)x, (bf16 *)y, saved, part));
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of each channel of a part: the sum of g, and of g xhat. */
template <class T> struct group_dots {
    struct k_group_norm k; const T *x, *gy; const double *saved; double *part; int64_t parts, per;
    DEVICE void one(size_t i) const
    {
        const int c = k.s.c;
        const int64_t ch = (int64_t)(i % (size_t)c), p = (int64_t)(i / (size_t)c) % parts,
                      n = (int64_t)(i / (size_t)c) / parts,
                      to = (p + 1) * per < k.s.points ? (p + 1) * per : k.s.points;
        const double *const of = saved + 2 * (n * k.groups + ch / (c / k.groups));
        double sum = 0, dot = 0;
        for (int64_t r = p * per; r < to; r++) {
            const int64_t at = (n * k.s.points + r) * c + ch;
            sum += to_float(gy[at]);
            dot += to_float(gy[at]) * ((to_float(x[at]) - of[0]) * of[1]);
        }
        part[2 * i] = sum;
        part[2 * i + 1] = dot;
    }
};

struct group_channels {
    const double *part; double *channel; int64_t parts; int c;
    DEVICE void one(size_t i) const
    {
        const int64_t ch = (int64_t)(i % (size_t)c), n = (int64_t)(i / (size_t)c);
        double v[2] = {0, 0};
        for (int64_t p = 0; p < parts; p++)
            for (int j = 0; j < 2; j++) v[j] += part[2 * ((n * parts + p) * c + ch) + j];
        for (int j = 0; j < 2; j++) channel[2 * i + j] = v[j];
    }
};

/* mean(t) and mean(t xhat), t = weight g, of each sample and group */
struct group_means {
    struct k_group_norm k; const double *channel; double *mean;
    DEVICE void one(size_t i) const
    {
        const int width = k.s.c / k.groups;
        const int64_t n = (int64_t)(i / (size_t)k.groups), from = (int64_t)(i % (size_t)k.groups) * width;
        double v[2] = {0, 0};
        for (int64_t ch = from; ch < from + width; ch++)
            for (int j = 0; j < 2; j++)
                v[j] += channel[2 * (n * k.s.c + ch) + j] * (double)(k.weight ? k.weight[ch] : 1.0f);
        for (int j = 0; j < 2; j++) mean[2 * i + j] = v[j] / ((double)k.s.points * width);
    }
};

struct group_weights {
    const double *channel; float *gw, *gb; int64_t n; int c; bool acc;
    DEVICE void one(size_t ch) const
    {
        double v[2] = {0, 0};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < 2; j++) v[j] += channel[2 * ((size_t)i * (size_t)c + ch) + j];
        if (gw) give(&gw[ch], (float)v[1], acc);
        if (gb) give(&gb[ch], (float)v[0], acc);
    }
};

template <class T, int N, class I> struct group_back {
    struct k_group_norm k; const T *x, *gy; T *gx; const double *saved, *mean; bool acc;
    DEVICE void one(I i) const
    {
        const I packs = (I)(k.s.c / N);
        const int ch = (int)(i % packs) * N, width = k.s.c / k.groups;
        const int64_t n = (int64_t)(i / packs / (I)k.s.points);
        const pack<T, N> v = get<N>(x + (size_t)i * N), g = get<N>(gy + (size_t)i * N);
        pack<T, N> to;
        if (acc) to = get<N>(gx + (size_t)i * N);
        UNROLL for (int j = 0; j < N; j++) {
            const int64_t at = 2 * (n * k.groups + (ch + j) / width);
            const double hat = (to_float(v.v[j]) - saved[at]) * saved[at + 1],
                         t = (double)to_float(g.v[j]) * (k.weight ? k.weight[ch + j] : 1.0f);
            give(&to.v[j], (float)(saved[at + 1] * (t - mean[at] - hat * mean[at + 1])), acc);
        }
        put<N>(gx + (size_t)i * N, to);
    }
};

template <class T> static int back(void *stream, const struct k_group_norm *k, const struct k_group_norm_grad *g)
{
    const struct parts p = parts_of(k);
    const size_t channels = (size_t)k->s.n * (size_t)k->s.c;
    double *const part = (double *)g->work, *const channel = part + 2 * (size_t)p.count * channels,
           *const mean = channel + 2 * channels;
    const T *const x = (const T *)g->x, *const gy = (const T *)g->gy;
    int bad = launch_one(stream, (size_t)p.count * channels,
                         group_dots<T>{*k, x, gy, g->saved, part, p.count, p.per});
    if (!bad) bad = launch_one(stream, channels, group_channels{part, channel, p.count, k->s.c});
    if (!bad && (g->gw || g->gb))
        bad = launch_one(stream, (size_t)k->s.c, group_weights{channel, g->gw, g->gb, k->s.n, k->s.c, g->gp_acc});
    if (bad || !g->gx) return bad;
    bad = launch_one(stream, (size_t)k->s.n * (size_t)k->groups, group_means{*k, channel, mean});
    return bad ? bad : launch_packs<group_back, T>(stream, (size_t)(k->s.n * k->s.points), k->s.c, true, *k, x, gy,
                                                   (T *)g->gx, g->saved, (const double *)mean, g->gx_acc);
}

extern "C" int k_group_norm_back(void *stream, const struct k_group_norm *k, const struct k_group_norm_grad *g)
{
    return BY_TYPE(k->s.type, back<float>(stream, k, g), back<bf16>(stream, k, g));
}
