/* Batch norm over the rows of [rows][c]: forward, and the running statistics.
 *
 * Two passes over memory: sums, then values. Each thread has one pack of channels and walks down the rows: neighbouring
 * threads read neighbouring memory, and a channel's constants are read once. Sums have four levels: a thread's rows in
 * float, then in double a block's threads, the blocks of a group and the groups of a slab (levels_of, sum_parts). The
 * last block to arrive adds. If one block a slab is enough, one launch does both passes. */
#include "kernels/norm.h"

/* ---- forward --------------------------------------------------------------------------------- */

template <class T> struct norm_values {
    const T *x, *add; T *y;
    /* training: this micro-batch's statistics; NULL: use the running ones */
    const double *saved;
    const float *running_mean, *running_var, *weight, *bias;
    double eps; int c; bool relu;

    /* the values of one block's part */
    template <int N> DEVICE void run(const struct thread_sharing &s, const struct where &w) const
    {
        SHARED struct norm_line lines[SLAB];
        const struct thread_place p(s, w);
        const int first = p.slab * s.width * N, channels = channels_of(s, p, N);
        EACH_THREAD(w, t) {
            for (int i = t; i < channels; i += w.threads) {
                int ch = first + i;
                lines[i] = saved ? line_of<T>(saved[ch], saved[c + ch], eps, weight[ch], bias[ch])
                                 : line_of<T>(running_mean[ch], running_var[ch], eps, weight[ch], bias[ch]);
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            if (!p.has(s, t)) continue;
            struct norm_line l[N];
            UNROLL for (int k = 0; k < N; k++) l[k] = lines[t % s.width * N + k];
            const int64_t at = (int64_t)p.pack(s, t) * N;
            walk_rows<4>(p.from + t / s.width, p.to, s.deep, [&](auto m, int64_t i) {
                constexpr int K = decltype(m)::n;
                pack<T, N> v[K], z[K];
                UNROLL for (int r = 0; r < K; r++) {
                    v[r] = get<N>(x + (i + r * s.deep) * c + at);
                    if (add) z[r] = get<N>(add + (i + r * s.deep) * c + at);
                }
                UNROLL for (int r = 0; r < K; r++) {
                    UNROLL for (int k = 0; k < N; k++) {
                        float f = on_line<T>(l[k], to_float(v[r].v[k]));
                        if (add) f += to_float(z[r].v[k]);
                        from_float(&v[r].v[k], relu && f <= 0 ? 0.0f : f);
                    }
                    put<N>(y + (i + r * s.deep) * c + at, v[r]);
                }
            });
        }
    }
};

template <class T, int N> struct norm_values_kernel {
    struct thread_sharing s; struct norm_values<T> values;
    DEVICE void block(const struct where &w) const { values.template run<N>(s, w); }
};

template <class T, int N> struct norm_sums_kernel {
    struct thread_sharing s; struct levels l; struct norm_values<T> values;
    const T *x; double *saved; struct norm_totals *group; struct moments *partial; unsigned *arrived; int c;

    DEVICE static void join(struct moments *a, float n, float mean, float m2, float k)
    {
        float delta = mean - a->mean, share = k / (n + k);
        a->mean += delta * share;
        a->m2 += m2 + delta * delta * n * share;
    }

    /* A thread's rows, four at a time: each four rows have their own mean, so no large values cancel. */
    DEVICE void thread_moments(const struct thread_place &p, int t, struct moments *out) const
    {
        struct moments a[N];
        float n = 0;
        UNROLL for (int k = 0; k < N; k++) a[k] = {0, 0};
        const int64_t at = (int64_t)p.pack(s, t) * N;
        walk_rows<4>(p.from + t / s.width, p.to, s.deep, [&](auto m, int64_t i) {
            constexpr int K = decltype(m)::n;
            pack<T, N> v[K];
            UNROLL for (int r = 0; r < K; r++) v[r] = get<N>(x + (i + r * s.deep) * c + at);
            UNROLL for (int k = 0; k < N; k++) {
                float mean = 0, m2 = 0;
                UNROLL for (int r = 0; r < K; r++) mean += to_float(v[r].v[k]);
                mean *= 1.0f / K;
                UNROLL for (int r = 0; r < K; r++) {
                    float d = to_float(v[r].v[k]) - mean;
                    m2 += d * d;
                }
                join(&a[k], n, mean, m2, K);
            }
            n += K;
        });
        UNROLL for (int k = 0; k < N; k++) out[k] = a[k];
    }

    DEVICE void block(const struct where &w) const
    {
        SHARED struct moments own[THREADS * N];
        SHARED channel_sums sums;
        const struct thread_place p(s, w);
        const int first = p.slab * s.width * N, channels = channels_of(s, p, N);
        EACH_THREAD(w, t) if (p.has(s, t)) thread_moments(p, t, own + t * N);
        BARRIER();
        /* Over threads: sums of means and squares, relative to the first thread's mean. */
        const int64_t rows = p.to - p.from;
        const int stride = s.width * N;
        const bool only = s.parts == 1;
        sum_channels(w, sums, channels, s.deep, [&](int i, int ch, double *v) {
            int64_t n = (rows - i + s.deep - 1) / s.deep;
            if (n > 0) add_moments(v, (double)n, {own[i * stride + ch].mean, own[i * stride + ch].m2}, own[ch].mean);
        }, [&](int ch, const double *v) {
            double mean = own[ch].mean + v[0] / (double)rows, m2 = v[1] - v[0] * v[0] / (double)rows;
            if (only) finish(first + ch, mean, m2);
            else partial[(int64_t)p.part * c + first + ch] = {(float)mean, (float)m2};
        });
        if (only) {
            values.template run<N>(s, w);
            return;
        }
        /* Over blocks, then over groups: the same, relative to the first one's mean. */
        sum_parts(w, slab{sums, s, l, p, channels, arrived}, [&](int i, int ch, double *v) {
            const struct moments *m = partial + (int64_t)i * c + first + ch;
            float middle = fresh(&partial[(int64_t)(i - i % l.span) * c + first + ch].mean);
            add_moments(v, rows_of(i, i + 1), {fresh(&m->mean), fresh(&m->m2)}, middle);
        }, [&](int g, int ch, const double *v) {
            double n = rows_of(g * l.span, (g + 1) * l.span);
            double middle = fresh(&partial[(int64_t)g * l.span * c + first + ch].mean);
            group[(int64_t)g * c + first + ch] = {middle + v[0] / n, v[1] - v[0] * v[0] / n};
        }, [&](int g, int ch, double *v) {
            const struct norm_totals *m = group + (int64_t)g * c + first + ch;
            double n = rows_of(g * l.span, (g + 1) * l.span);
            add_moments(v, n, {fresh(&m->mean), fresh(&m->m2)}, fresh(&group[first + ch].mean));
        }, [&](int ch, const double *v) {
            double middle = l.groups > 1 ? fresh(&group[first + ch].mean) : fresh(&partial[first + ch].mean);
            finish(first + ch, middle + v[0] / (double)s.rows, v[1] - v[0] * v[0] / (double)s.rows);
        });
    }

    /* rows of parts `from` up to `to` */
    DEVICE double rows_of(int from, int to) const
    {
        int64_t end = to * s.per_part;
        return (double)((end < s.rows ? end : s.rows) - from * s.per_part);
    }
    DEVICE static void add_moments(double *v, double n, struct norm_totals m, double middle)
    {
        double d = m.mean - middle;
        v[0] += n * d;
        v[1] += m.m2 + n * d * d;
    }
    DEVICE void finish(int ch, double mean, double m2) const
    {
        saved[ch] = mean;
        saved[c + ch] = m2 > 0 || m2 != m2 ? m2 / (double)s.rows : 0;
    }
};

extern "C" size_t k_norm_work(int64_t rows, int c)
{
    int most = 1;
    for (int n = 1; n <= 8; n *= 2) {
        int parts = rows > 0 && c % n == 0 ? share_sums(rows, c / n, AHEAD).parts : 0;
        if (parts > most) most = parts;
    }
    return work_of(most, c);
}

template <class T, int N> static int values_launch(void *stream, int64_t rows, const struct norm_values<T> &v)
{
    if (rows <= 0) return 0;
    struct thread_sharing s = share_values(rows, v.c / N, AHEAD);
    return launch<AHEAD>(stream, blocks_of(s), THREADS, norm_values_kernel<T, N>{s, v});
}

template <class T, int N> static int train_launch(void *stream, int64_t rows, const struct norm_values<T> &v,
                                                  double *saved, void *work, unsigned *arrived)
{
    if (rows <= 0) return 0;
    struct thread_sharing s = share_sums(rows, v.c / N, AHEAD);
    const struct levels l = levels_of(s.parts);
    if (!countable(s)) return BAD_CALL;
    const struct norm_sums_kernel<T, N> sums = {
        s, l, v, v.x, saved, groups_of(work, v.c), partial_of(work, l, v.c), arrived, v.c
    };
    int bad = launch<AHEAD>(stream, blocks_of(s), THREADS, sums);
    return bad || s.parts == 1 ? bad : values_launch<T, N>(stream, rows, v);
}

template <class T>
static struct norm_values<T> values_of(const struct k_norm *k, const struct k_norm_sum *s) {
    return {(const T *)s->x, (const T *)s->add, (T *)s->y, NULL, NULL, NULL, k->weight, k->bias, k->eps, k->c, k->relu};
}

template <class T>
static int train(void *stream, const struct k_norm *k, const struct k_norm_sum *s, double *saved, void *work)
{
    struct norm_values<T> v = values_of<T>(k, s);
    v.saved = saved;
    return k->c % WIDE<T> ? train_launch<T, 1>(stream, k->rows, v, saved, work, k->arrived)
                          : train_launch<T, WIDE<T>>(stream, k->rows, v, saved, work, k->arrived);
}

template <class T>
static int eval(void *stream, const struct k_norm *k, const struct k_norm_sum *s, const float *mean, const float *var)
{
    struct norm_values<T> v = values_of<T>(k, s);
    v.running_mean = mean;
    v.running_var = var;
    return k->c % WIDE<T> ? values_launch<T, 1>(stream, k->rows, v) : values_launch<T, WIDE<T>>(stream, k->rows, v);
}

extern "C" int k_norm_train(void *stream, const struct k_norm *k, const struct k_norm_sum *s, double *saved,
                            void *work)
{
    return BY_TYPE(k->type, train<float>(stream, k, s, saved, work), train<bf16>(stream, k, s, saved, work));
}

extern "C" int k_norm_eval(void *stream, const struct k_norm *k, const struct k_norm_sum *s, const float *mean,
                           const float *var)
{
    return BY_TYPE(k->type, eval<float>(stream, k, s, mean, var), eval<bf16>(stream, k, s, mean, var));
}

/* ---- running statistics: op_batch_norm's `stats` --------------------------------------------- */

/* A block has up to THREADS channels of one batch norm; the first blocks of all batch norms come first, then their
 * second ones. */
struct running_kernel {
    struct k_running_step s;

    DEVICE static float next(float running, double value, double momentum)
    {
        return (float)((1 - momentum) * running + momentum * value);
    }
    DEVICE void one(const struct k_running &k, const double *const *kept, int ch) const
    {
        double all = 0, mid = 0, m2 = 0;
        float mean = k.mean[ch], var = k.var[ch];
        for (int i = 0; i < s.n_mb; i++) {
            const double rows = (double)s.samples[i] * (double)k.points, m = kept[i][ch], v = kept[i][k.c + ch];
            const double delta = m - mid;
            if (s.deferred) {
                m2 += v * rows + delta * delta * all * rows / (all + rows);
                mid += delta * rows / (all + rows);
                all += rows;
            } else {
                mean = next(mean, m, k.momentum);
                var = next(var, v * rows / (rows - 1), k.momentum);
            }
        }
        k.mean[ch] = s.deferred ? next(mean, mid, k.momentum) : mean;
        k.var[ch] = s.deferred ? next(var, m2 / (all - 1), k.momentum) : var;
        if (ch == 0) *k.count += s.deferred ? 1 : s.n_mb;
    }
    DEVICE void block(const struct where &w) const
    {
        const int i = w.block % s.n;
        EACH_THREAD(w, t) {
            int ch = w.block / s.n * THREADS + t;
            if (ch < s.of[i].c) one(s.of[i], s.saved + (int64_t)i * s.n_mb, ch);
        }
    }
};

extern "C" int k_norm_running(void *stream, const struct k_running_step *k)
{
    return launch(stream, k->n * div_up(k->most_c, THREADS), THREADS, running_kernel{*k});
}
