/* Batch norm's backward pass, with the ReLU and the addition that follow batch norm. As in norm.cu: one pass of sums,
 * one of values.
 *
 * g = gy, 0 where the output was not positive; s = sum g; d = sum g hat, hat = (x - mean) / deviation. Gradients: of
 * weight d, of bias s, of the other summand g, and of x  weight / deviation (g - s / rows - hat d / rows). If g_add is
 * set, the pass of sums writes g; if it does not add there, the pass of values reads g and needs no mask. */
#include "kernels/norm.h"

/* gx = slope g + tilt (x - middle) + shift */
struct norm_plane { float middle, slope, tilt, shift; };

template <class T> struct norm_grads {
    const T *x, *y, *gy;                                 /* y NULL with relu: y's sign is computed again */
    T *g_add, *gx; bool g_add_acc, gx_acc;
    const double *saved; double *total;                  /* total: s and d of every channel */
    const float *mean, *var;                             /* running statistics, if saved is NULL */
    const float *weight, *bias;
    double eps; int64_t rows; int c; bool relu;
    float *gw, *gb; bool gp_acc;

    DEVICE bool guess() const { return relu && !y; }
    DEVICE double mean_at(int ch) const { return saved ? saved[ch] : mean[ch]; }
    DEVICE double var_at(int ch) const { return saved ? saved[c + ch] : var[ch]; }
    DEVICE struct norm_line line_at(int ch) const { return line_of<T>(mean_at(ch), var_at(ch), eps, weight[ch],
                                                                      bias[ch]); }

    /* loads x and the masked gradients of K rows */
    template <int K, int N>
    DEVICE void masked(int64_t at, int64_t step, const struct norm_line *l, pack<T, N> *v, pack<T, N> *g) const
    {
        pack<T, N> out[K];
        UNROLL for (int r = 0; r < K; r++) {
            v[r] = get<N>(x + at + r * step);
            g[r] = get<N>(gy + at + r * step);
            if (relu && y) out[r] = get<N>(y + at + r * step);
        }
        if (!relu) return;
        UNROLL for (int r = 0; r < K; r++) {
            UNROLL for (int k = 0; k < N; k++) {
                /* NaN is not masked */
                bool off = (y ? to_float(out[r].v[k]) : on_line<T>(l[k], to_float(v[r].v[k]))) <= 0;
                if (off) from_float(&g[r].v[k], 0.0f);
            }
        }
    }

    DEVICE struct norm_plane plane_of(int ch) const
    {
        if (!saved) return {0, (float)(weight[ch] / sqrt(var_at(ch) + eps)), 0, 0};
        double inv = 1 / sqrt(saved[c + ch] + eps), slope = weight[ch] * inv,
               tilt = -slope * inv * fresh(&total[c + ch]) / (double)rows;
        struct norm_plane p = {centre<T>(saved[ch]), (float)slope, (float)tilt, 0};
        p.shift = (float)(-slope * fresh(&total[ch]) / (double)rows - tilt * (saved[ch] - p.middle));
        return p;
    }

    /* the gradient of x in one block's part */
    template <int N> DEVICE void run(const struct thread_sharing &s, const struct where &w) const
    {
        SHARED struct norm_plane planes[SLAB];
        SHARED struct norm_line lines[SLAB];
        const struct thread_place p(s, w);
        const int first = p.slab * s.width * N, channels = channels_of(s, p, N);
        const bool ready = g_add && !g_add_acc;          /* g_add has g */
        EACH_THREAD(w, t) {
            for (int i = t; i < channels; i += w.threads) {
                planes[i] = plane_of(first + i);
                if (!ready && guess()) lines[i] = line_at(first + i);
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            if (!p.has(s, t)) continue;
            struct norm_plane q[N];
            const struct norm_line *l = lines + t % s.width * N;
            UNROLL for (int k = 0; k < N; k++) q[k] = planes[t % s.width * N + k];
            const int64_t pack_at = (int64_t)p.pack(s, t) * N, step = (int64_t)s.deep * c;
            walk_rows<2>(p.from + t / s.width, p.to, s.deep, [&](auto m, int64_t i) {
                constexpr int K = decltype(m)::n;
                const int64_t at = i * c + pack_at;
                pack<T, N> v[K], g[K], old[K] = {};
                if (gx_acc) {
                    UNROLL for (int r = 0; r < K; r++) old[r] = get<N>(gx + at + r * step);
                }
                if (ready) {
                    UNROLL for (int r = 0; r < K; r++) {
                        v[r] = get<N>(x + at + r * step);
                        g[r] = get<N>(g_add + at + r * step);
                    }
                } else masked<K, N>(at, step, l, v, g);
                UNROLL for (int r = 0; r < K; r++) {
                    UNROLL for (int k = 0; k < N; k++) {
                        float f = q[k].slope * to_float(g[r].v[k]) +
                                  (q[k].tilt * centred<T>(to_float(v[r].v[k]), q[k].middle) + q[k].shift);
                        from_float(&v[r].v[k], gx_acc ? to_float(old[r].v[k]) + f : f);
                    }
                    put<N>(gx + at + r * step, v[r]);
                }
            });
        }
    }
};

template <class T, int N> struct grads_kernel {
    struct thread_sharing s; struct norm_grads<T> n;
    DEVICE void block(const struct where &w) const { n.template run<N>(s, w); }
};

template <class T, int N> struct grad_sums_kernel {
    struct thread_sharing s; struct levels l; struct norm_grads<T> n;
    struct norm_totals *group; struct moments *partial; unsigned *arrived;

    /* sum g and sum g (x - mean) over a thread's rows; also writes g if g_add is set */
    DEVICE void thread_sums(const struct thread_place &p, int t, const float *means, const struct norm_line *l,
                            struct moments *out) const
    {
        struct moments a[N];
        float mean[N];
        UNROLL for (int k = 0; k < N; k++) a[k] = {0, 0}, mean[k] = means[k];
        const int64_t pack_at = (int64_t)p.pack(s, t) * N, step = (int64_t)s.deep * n.c;
        walk_rows<2>(p.from + t / s.width, p.to, s.deep, [&](auto m, int64_t i) {
            constexpr int K = decltype(m)::n;
            const int64_t at = i * n.c + pack_at;
            pack<T, N> v[K], g[K];
            n.template masked<K, N>(at, step, l, v, g);
            UNROLL for (int r = 0; r < K; r++) {
                UNROLL for (int k = 0; k < N; k++) {
                    float f = to_float(g[r].v[k]);
                    a[k].mean += f;
                    a[k].m2 += f * (to_float(v[r].v[k]) - mean[k]);
                }
            }
            if (n.g_add) {
                UNROLL for (int r = 0; r < K; r++) {
                    T *to = n.g_add + at + r * step;
                    if (n.g_add_acc) {
                        pack<T, N> old = get<N>(to);
                        UNROLL for (int k = 0; k < N; k++)
                            from_float(&g[r].v[k], to_float(old.v[k]) + to_float(g[r].v[k]));
                    }
                    put<N>(to, g[r]);
                }
            }
        });
        UNROLL for (int k = 0; k < N; k++) out[k] = a[k];
    }

    /* A channel's totals: of g, and of g (x - mean rounded to float). */
    DEVICE void finish(int ch, double sum, double dot) const
    {
        double mean = n.mean_at(ch), inv = 1 / sqrt(n.var_at(ch) + n.eps);
        dot = (dot + ((double)(float)mean - mean) * sum) * inv;
        n.total[ch] = sum;
        n.total[n.c + ch] = dot;
        if (n.gw) give(&n.gw[ch], (float)dot, n.gp_acc);
        if (n.gb) give(&n.gb[ch], (float)sum, n.gp_acc);
    }

    DEVICE void block(const struct where &w) const
    {
        SHARED struct moments own[THREADS * N];
        SHARED channel_sums sums;
        SHARED struct norm_line lines[SLAB];
        SHARED float means[SLAB];
        const struct thread_place p(s, w);
        const int first = p.slab * s.width * N, channels = channels_of(s, p, N), stride = s.width * N;
        const bool only = s.parts == 1;
        EACH_THREAD(w, t) {
            for (int i = t; i < channels; i += w.threads) {
                means[i] = (float)n.mean_at(first + i);
                if (n.guess()) lines[i] = n.line_at(first + i);
            }
        }
        BARRIER();
        EACH_THREAD(w, t)
        if (p.has(s, t)) thread_sums(p, t, means + t % s.width * N, lines + t % s.width * N, own + t * N);
        BARRIER();
        sum_channels(w, sums, channels, s.deep, [&](int i, int ch, double *v) {
            v[0] += own[i * stride + ch].mean;
            v[1] += own[i * stride + ch].m2;
        }, [&](int ch, const double *v) {
            if (only) finish(first + ch, v[0], v[1]);
            else partial[(int64_t)p.part * n.c + first + ch] = {(float)v[0], (float)v[1]};
        });
        if (only) {
            if (n.gx) n.template run<N>(s, w);
            return;
        }
        sum_parts(w, slab{sums, s, l, p, channels, arrived}, [&](int i, int ch, double *v) {
            const struct moments *m = partial + (int64_t)i * n.c + first + ch;
            v[0] += fresh(&m->mean);
            v[1] += fresh(&m->m2);
        }, [&](int g, int ch, const double *v) {
            group[(int64_t)g * n.c + first + ch] = {v[0], v[1]};
        }, [&](int g, int ch, double *v) {
            const struct norm_totals *m = group + (int64_t)g * n.c + first + ch;
            v[0] += fresh(&m->mean);
            v[1] += fresh(&m->m2);
        }, [&](int ch, const double *v) { finish(first + ch, v[0], v[1]); });
    }
};

template <class T, int N> static int back_launch(void *stream, const struct norm_grads<T> &n, void *work,
                                                 unsigned *arrived)
{
    struct thread_sharing s = share_sums(n.rows, n.c / N, BACK);
    const struct levels l = levels_of(s.parts);
    if (!countable(s)) return BAD_CALL;
    const grad_sums_kernel<T, N> sums = {s, l, n, groups_of(work, n.c), partial_of(work, l, n.c), arrived};
    int bad = launch<BACK>(stream, blocks_of(s), THREADS, sums);
    if (bad || s.parts == 1 || !n.gx) return bad;
    s = share_values(n.rows, n.c / N, BACK);
    return launch<BACK>(stream, blocks_of(s), THREADS, grads_kernel<T, N>{s, n});
}

template <class T>
static int back(void *stream, const struct k_norm *k, const struct k_norm_grad *g, void *work)
{
    struct norm_grads<T> n = {
        (const T *)g->x, (const T *)g->y, (const T *)g->gy, (T *)g->g_add, (T *)g->gx, g->g_add_acc, g->gx_acc,
            g->saved, (double *)work, g->mean, g->var, k->weight, k->bias, k->eps, k->rows, k->c, k->relu, g->gw,
            g->gb, g->gp_acc
    };
    if (k->rows <= 0) return 0;
    return k->c % WIDE<T> ? back_launch<T, 1>(stream, n, work, k->arrived)
                          : back_launch<T, WIDE<T>>(stream, n, work, k->arrived);
}

extern "C" int k_norm_back(void *stream, const struct k_norm *k, const struct k_norm_grad *g, void *work)
{
    return BY_TYPE(k->type, back<float>(stream, k, g, work), back<bf16>(stream, k, g, work));
}
