/* Losses and scores that classify each point, x[n][points][c] with labels[n][points]: like src/model/ops, in double. A
 * thread has every parts-th point of a sample, so that neighbouring threads read neighbouring points. A block adds the
 * sums of a sample's threads, so the order depends on a sample's sizes alone. The threads' sums are in workspace, which
 * limits the number of threads: samples have few threads, and a launch takes some of the samples. Neither depends on
 * the number of samples. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "model/op.h"
#include "model/ops/segment_rule.h"

/* sums of each thread; threads of a launch, unless there are more classes */
enum { SUMS = 4, AT_ONCE = 1 << 17 };

/* Threads of a sample for one of `classes` classes. */
static int64_t parts_of(const struct k_segment *k, int64_t classes)
{
    enum { LEAST = 64, MOST = 512 };
    const int64_t want = div_up(k->points, LEAST), space = classes < AT_ONCE ? AT_ONCE / classes : 1;
    const int64_t most = space < MOST ? space : (int64_t)MOST;
    return want < most ? want : most;
}

/* samples of a launch */
static int64_t some_of(const struct k_segment *k, int64_t classes)
{
    const int64_t threads = parts_of(k, classes) * classes, most = threads < AT_ONCE ? AT_ONCE / threads : 1;
    return most < k->n ? most : k->n;
}

/* Calls f(first sample, number of samples) for each launch. */
template <class F> static int each_launch(const struct k_segment *k, int64_t classes, F f)
{
    const int64_t some = some_of(k, classes);
    int bad = 0;
    for (int64_t first = 0; first < k->n && !bad; first += some)
        bad = f(first, k->n - first < some ? k->n - first : some);
    return bad;
}

/* the same call for some of the samples */
static struct k_segment part_of(const struct k_segment *k, int64_t first, int64_t n)
{
    struct k_segment s = *k;
    s.n = n;
    s.labels = (const char *)k->labels + first * k->points * k->label_bytes;
    return s;
}

static const void *outputs_of(const struct k_segment *k, const void *x, int64_t first)
{
    return (const char *)x + first * k->points * k->c * (k->type == K_BF16 ? 2 : 4);
}

extern "C" size_t k_segment_work(const struct k_segment *k)
{
    const int64_t classes[] = {1, k->c > 1 ? k->c - 1 : 1, k->c};   /* of cross-entropy, overlap and Dice */
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t threads = some_of(k, classes[i]) * parts_of(k, classes[i]) * classes[i];
        if (threads > most) most = threads;
    }
    return SUMS * sizeof(double) * (size_t)most;
}

/* one sample */
template <class T> struct segment_map {
    const T *x; const struct k_segment &k; int64_t n;
    DEVICE segment_map(const void *all, const struct k_segment &of, int64_t sample)
        : x((const T *)all + sample * of.points * of.c), k(of), n(sample) { }
    DEVICE double at(int64_t i, int c) const { return to_float(x[i * k.c + c]); }
    DEVICE int64_t label(int64_t i) const
    {
        const int64_t p = n * k.points + i;
        if (k.label_bytes == 1) return ((const uint8_t *)k.labels)[p];
        return k.label_bytes == 4 ? ((const int32_t *)k.labels)[p] : ((const int64_t *)k.labels)[p];
    }
    DEVICE double y(int64_t label, int c) const { return k.c == 1 ? label == 1 : label == c; }
    DEVICE double log_sum(int64_t i) const
    {
        double most = at(i, 0), sum = 0;
        for (int c = 1; c < k.c; c++) if (at(i, c) > most) most = at(i, c);
        for (int c = 0; c < k.c; c++) sum += exp(at(i, c) - most);
        return most + log(sum);
    }
    DEVICE double p(int64_t i, int c, double lse) const
    {
        const double v = at(i, c);
        if (!k.sigmoid) return exp(v - lse);
        return v < 0 ? exp(v) / (1 + exp(v)) : 1 / (1 + exp(-v));
    }
    DEVICE int64_t taken(int64_t i) const
    {
        int best = 0;
        if (k.c == 1) return at(i, 0) >= 0;
        for (int c = 1; c < k.c; c++) if (at(i, c) > at(i, best)) best = c;
        return best;
    }
};

/* Sum q of a sample's threads for class c; part[n][class][parts][SUMS]. */
DEVICE double total(const struct where &w, const double *part, int64_t parts, int64_t classes, int64_t c, int q)
{
    const double *const from = part + ((int64_t)w.block * classes + c) * parts * SUMS + q;
    return block_sum(w, [&](int t) {
        double v = 0;
        for (int64_t i = t; i < parts; i += w.threads) v += from[i * SUMS];
        return v;
    });
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

template <class T> struct point_entropy {
    struct k_segment k; const void *x; double *part; int64_t parts;
    DEVICE void one(size_t i) const
    {
        const segment_map<T> m(x, k, (int64_t)(i / (size_t)parts));
        const double spread = k.smoothing / k.c;
        double sum[3] = {0, 0, 0};
        for (int64_t p = (int64_t)(i % (size_t)parts); p < k.points; p += parts) {
            const double lse = m.log_sum(p);
            const int64_t right = m.label(p);
            const bool known = right >= 0 && right < k.c;
            const double of = known ? m.at(p, (int)right) : 0;
            int64_t before = 0;
            for (int c = 0; c < k.c; c++) {
                const double v = m.at(p, c), t = (1 - k.smoothing) * (c == right) + spread;
                if (t != 0) sum[0] -= t * (v - lse);
                before += v > of || (v == of && c < right) || of != of;
            }
            sum[1] += known && before < 1;
            sum[2] += known && before < 5;
        }
        for (int q = 0; q < 3; q++) part[i * SUMS + q] = sum[q];
    }
};

struct point_entropy_sum {
    const double *part; double *loss; int64_t parts, points;
    DEVICE void block(const struct where &w) const
    {
        for (int q = 0; q < 3; q++) {
            const double sum = total(w, part, parts, 1, 0, q);
            EACH_THREAD(w, t) if (t == 0) loss[3 * (int64_t)w.block + q] = sum / (double)points;
        }
    }
};

extern "C" int k_point_entropy(void *stream, const struct k_segment *k, const void *x, double *loss, void *work)
{
    const int64_t parts = parts_of(k, 1);
    double *const part = (double *)work;
    return each_launch(k, 1, [&](int64_t first, int64_t n) {
        const struct k_segment s = part_of(k, first, n);
        const void *const of = outputs_of(k, x, first);
        const size_t all = (size_t)(n * parts);
        const int bad = BY_TYPE(k->type, launch_one(stream, all, point_entropy<float>{s, of, part, parts}),
                                launch_one(stream, all, point_entropy<bf16>{s, of, part, parts}));
        return bad ? bad : launch(stream, n, THREADS, point_entropy_sum{part, loss + 3 * first, parts, k->points});
    });
}

template <class T> struct point_entropy_back {
    struct k_segment k; const void *x; const struct be_block *step; T *gx; bool acc;
    DEVICE void one(size_t i) const
    {
        const segment_map<T> m(x, k, (int64_t)(i / (size_t)k.points));
        const int64_t p = (int64_t)(i % (size_t)k.points), right = m.label(p);
        const double lse = m.log_sum(p), by = step->inv_weight / (double)k.points, spread = k.smoothing / k.c;
        for (int c = 0; c < k.c; c++)
            give(&gx[i * (size_t)k.c + (size_t)c],
                 (float)((exp(m.at(p, c) - lse) - (1 - k.smoothing) * (c == right) - spread) * by), acc);
    }
};

extern "C" int k_point_entropy_back(void *stream, const struct k_segment *k, const struct be_block *block,
                                    const void *x, void *gx, bool acc)
{
    const size_t all = (size_t)k->n * (size_t)k->points;
    return BY_TYPE(k->type, launch_one(stream, all, point_entropy_back<float>{*k, x, block, (float *)gx, acc}),
                   launch_one(stream, all, point_entropy_back<bf16>{*k, x, block, (bf16 *)gx, acc}));
}

/* ---- Dice ------------------------------------------------------------------------------------ */

template <class T> struct dice_part {
    struct k_segment k; const void *x; double *part; int64_t parts;
    DEVICE void one(size_t i) const
    {
        const int c = (int)(i / (size_t)parts % (size_t)k.c);
        const segment_map<T> m(x, k, (int64_t)(i / (size_t)parts / (size_t)k.c));
        double sum[SUMS] = {0, 0, 0, 0};
        for (int64_t p = (int64_t)(i % (size_t)parts); p < k.points; p += parts) {
            const double lse = k.sigmoid ? 0 : m.log_sum(p), v = m.at(p, c), y = m.y(m.label(p), c), q = m.p(p, c, lse);
            sum[0] += q * y;
            sum[1] += k.power == 2 ? q * q : q;
            sum[2] += y;
            if (k.ce) sum[3] += k.sigmoid ? ((v > 0 ? v : 0) - v * y + log1p(exp(-fabs(v)))) / k.c : y * (lse - v);
        }
        for (int q = 0; q < SUMS; q++) part[i * SUMS + q] = sum[q];
    }
};

struct dice_sum {
    struct k_segment k; const double *part; double *loss, *kept; int64_t parts;
    DEVICE void block(const struct where &w) const
    {
        double ce = 0, ratio = 0;
        for (int c = 0; c < k.c; c++) {
            double sum[SUMS];
            for (int q = 0; q < SUMS; q++) sum[q] = total(w, part, parts, k.c, c, q);
            if (c >= k.first) ratio += dice_ratio(sum, k.smooth);
            ce += sum[3];
            EACH_THREAD(w, t) {
                for (int q = 0; q < DICE_KEPT && t == 0; q++)
                    kept[((int64_t)w.block * k.c + c) * DICE_KEPT + q] = sum[q];
            }
        }
        EACH_THREAD(w, t) if (t == 0) loss[w.block] = 1 - ratio / (k.c - k.first) + ce / (double)k.points;
    }
};

extern "C" int k_dice(void *stream, const struct k_segment *k, const void *x, double *loss, double *kept, void *work)
{
    const int64_t parts = parts_of(k, k->c);
    double *const part = (double *)work;
    return each_launch(k, k->c, [&](int64_t first, int64_t n) {
        const struct k_segment s = part_of(k, first, n);
        const void *const of = outputs_of(k, x, first);
        const size_t all = (size_t)(n * parts * k->c);
        const int bad = BY_TYPE(k->type, launch_one(stream, all, dice_part<float>{s, of, part, parts}),
                                launch_one(stream, all, dice_part<bf16>{s, of, part, parts}));
        return bad ? bad : launch(stream, n, THREADS,
                                  dice_sum{s, part, loss + first, kept + first * k->c * DICE_KEPT, parts});
    });
}

template <class T> struct dice_back {
    struct k_segment k; const void *x; const double *kept; const struct be_block *step; T *gx; bool acc;
    DEVICE struct dice_slopes slopes(int64_t n, int c) const
    {
        return dice_slopes_of(kept + (n * k.c + c) * DICE_KEPT, k.smooth, k.power, k.c - k.first);
    }
    DEVICE void one(size_t i) const
    {
        const segment_map<T> m(x, k, (int64_t)(i / (size_t)k.points));
        const int64_t p = (int64_t)(i % (size_t)k.points), label = m.label(p);
        const double lse = k.sigmoid ? 0 : m.log_sum(p);
        double mean = 0;
        for (int c = k.first; c < k.c && !k.sigmoid; c++) {
            const double q = m.p(p, c, lse);
            mean += q * dice_slope(slopes(m.n, c), k.power, q, m.y(label, c));
        }
        for (int c = 0; c < k.c; c++) {
            const double y = m.y(label, c), q = m.p(p, c, lse);
            const double s = c < k.first ? 0 : dice_slope(slopes(m.n, c), k.power, q, y);
            double g = k.sigmoid ? s * q * (1 - q) : q * (s - mean);
            if (k.ce) g += (q - y) / (double)k.points / (k.sigmoid ? k.c : 1);
            give(&gx[i * (size_t)k.c + (size_t)c], (float)(g * step->inv_weight), acc);
        }
    }
};

extern "C" int k_dice_back(void *stream, const struct k_segment *k, const struct be_block *block, const void *x,
                           const double *kept, const struct k_grad *g)
{
    const size_t all = (size_t)k->n * (size_t)k->points;
    return BY_TYPE(k->type, launch_one(stream, all, dice_back<float>{*k, x, kept, block, (float *)g->gx, g->acc}),
                   launch_one(stream, all, dice_back<bf16>{*k, x, kept, block, (bf16 *)g->gx, g->acc}));
}

/* ---- overlap --------------------------------------------------------------------------------- */

/* Of each class except 0: how often it was right, chosen, and true. */
template <class T> struct overlap_part {
    struct k_segment k; const void *x; double *part; int64_t parts, classes;
    DEVICE void one(size_t i) const
    {
        const int64_t c = (int64_t)(i / (size_t)parts % (size_t)classes) + 1;
        const segment_map<T> m(x, k, (int64_t)(i / (size_t)parts / (size_t)classes));
        double right = 0, taken = 0, is = 0;
        for (int64_t p = (int64_t)(i % (size_t)parts); p < k.points; p += parts) {
            const bool a = m.taken(p) == c, b = m.label(p) == c;
            right += a && b;
            taken += a;
            is += b;
        }
        part[i * SUMS] = right;
        part[i * SUMS + 1] = taken;
        part[i * SUMS + 2] = is;
    }
};

struct overlap_sum {
    const double *part; double *out; int64_t parts, classes, points;
    DEVICE void block(const struct where &w) const
    {
        const int64_t columns = OVERLAP_SUMS + OVERLAP_EACH * classes;
        double *const to = out + (int64_t)w.block * columns;
        EACH_THREAD(w, t) for (int64_t i = t; i < OVERLAP_SUMS; i += w.threads) to[i] = 0;
        BARRIER();
        for (int64_t c = 0; c < classes; c++) {
            double sum[3];
            for (int q = 0; q < 3; q++) sum[q] = total(w, part, parts, classes, c, q);
            EACH_THREAD(w, t) {
                if (t == 0) overlap_add(to, c, sum[0], sum[1] - sum[0], sum[2] - sum[0], (double)points);
            }
        }
    }
};

extern "C" int k_overlap(void *stream, const struct k_segment *k, const void *x, double *out, void *work)
{
    const int64_t classes = k->c > 1 ? k->c - 1 : 1, parts = parts_of(k, classes);
    const int64_t columns = OVERLAP_SUMS + OVERLAP_EACH * classes;
    double *const part = (double *)work;
    return each_launch(k, classes, [&](int64_t first, int64_t n) {
        const struct k_segment s = part_of(k, first, n);
        const void *const of = outputs_of(k, x, first);
        const size_t all = (size_t)(n * parts * classes);
        const int bad = BY_TYPE(k->type, launch_one(stream, all, overlap_part<float>{s, of, part, parts, classes}),
                                launch_one(stream, all, overlap_part<bf16>{s, of, part, parts, classes}));
        return bad ? bad : launch(stream, n, THREADS,
                                  overlap_sum{part, out + first * columns, parts, classes, k->points});
    });
}
