/* Decoders: rotary positions, and the loss of tokens with its head. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "model/op.h"

/* ---- rotary positions -------------------------------------------------------------------------- */

/* One pair. */
template <class T> struct rotary_op {
    struct k_rotary r; const T *x; T *y;
    DEVICE void one(size_t i) const
    {
        const size_t pair = i % (size_t)r.half, head = i / (size_t)r.half, row = head / (size_t)r.heads;
        const int32_t position = r.positions ? r.positions[row] : (int32_t)(row % (size_t)r.points);
        const float angle = (float)position * r.rate[pair];
        const double c = cos((double)angle), s = r.back ? -sin((double)angle) : sin((double)angle);
        const size_t at = head * 2 * (size_t)r.half + pair, other = at + (size_t)r.half;
        const double x1 = to_float(x[at]), x2 = to_float(x[other]);
        give(&y[at], (float)(x1 * c - x2 * s), r.acc);
        give(&y[other], (float)(x2 * c + x1 * s), r.acc);
    }
};

template <class T> static int rotary(void *stream, const struct k_rotary *r, const void *x, void *y)
{
    const size_t pairs = (size_t)r->n * (size_t)r->points * (size_t)r->heads * (size_t)r->half;
    return launch_one(stream, pairs, rotary_op<T>{*r, (const T *)x, (T *)y});
}

extern "C" int k_rotary(void *stream, const struct k_rotary *r, const void *x, void *y)
{
    return BY_TYPE(r->type, rotary<float>(stream, r, x, y), rotary<bf16>(stream, r, x, y));
}

/* ---- token loss -------------------------------------------------------------------------------- */

DEVICE int64_t label_of(const struct k_tokens &k, int64_t row)
{
    return k.wide ? ((const int64_t *)k.labels)[row] : ((const int32_t *)k.labels)[row];
}

template <class T> DEVICE double logit_of(const struct k_tokens &k, const T *x, int64_t row, int64_t cls)
{
    double sum = k.bias ? k.bias[cls] : 0;
    for (int i = 0; i < k.width; i++) sum += (double)to_float(x[row * k.width + i]) * k.weight[cls * k.width + i];
    return sum;
}

/* One block a row: its largest logit and the sum of e^(logit - largest). columns: double[rows][3], of the row. */
template <class T> struct token_row {
    struct k_tokens k; const T *x; float *kept; double *columns;
    DEVICE void block(const struct where &w) const
    {
        const int64_t row = w.block, label = label_of(k, row);
        const double most = block_max(w, [&](int t) {
            double m = -INFINITY;
            for (int64_t c = t; c < k.classes; c += w.threads) {
                const double z = logit_of(k, x, row, c);
                m = z > m || z != z ? z : m;
            }
            return m;
        });
        const double sum = block_sum(w, [&](int t) {
            double s = 0;
            for (int64_t c = t; c < k.classes; c += w.threads) s += exp(logit_of(k, x, row, c) - most);
            return s;
        });
        const double before = block_sum(w, [&](int t) {
            double n = 0;
            for (int64_t c = t; c < k.classes && c < label; c += w.threads) n += logit_of(k, x, row, c) >= most;
            return n;
        });
        EACH_THREAD(w, t) {
            if (t) continue;
            const bool known = label >= 0 && label < k.classes, counts = label != k.ignore;
            const double right = known ? logit_of(k, x, row, label) : NAN;
            kept[2 * row] = (float)most;
            kept[2 * row + 1] = (float)(exp((double)(float)most - most) / sum);
            columns[3 * row] = counts ? most + log(sum) - right : 0;
            columns[3 * row + 1] = counts && right >= most && before == 0;
            columns[3 * row + 2] = counts;
        }
    }
};

/* Sums of a sample's rows, in order. */
struct token_sums {
    const double *row; double *columns; int points;
    DEVICE void one(size_t i) const
    {
        const int64_t first = (int64_t)(i / 3) * points;
        double sum = 0;
        for (int64_t p = first; p < first + points; p++) sum += row[3 * p + (int64_t)(i % 3)];
        columns[i] = sum;
    }
};

template <class T> struct token_gradient {
    struct k_tokens k; const T *x; const struct be_block *of; const float *kept;
    DEVICE double at(int64_t row, int64_t cls) const
    {
        const int64_t label = label_of(k, row);
        if (label == k.ignore) return 0;
        const double p = exp(logit_of(k, x, row, cls) - kept[2 * row]) * kept[2 * row + 1];
        return (p - (cls == label)) * of->inv_weight;
    }
};

/* One block a row and THREADS of its channels: a thread has the gradient of a logit, then adds all to its channel. */
template <class T> struct token_back {
    token_gradient<T> g; T *gx; bool acc; int tiles;
    DEVICE void block(const struct where &w) const
    {
        SHARED double dz[THREADS], sum[THREADS];
        const int64_t row = w.block / tiles;
        const int first = w.block % tiles * THREADS;
        EACH_THREAD(w, t) sum[t] = 0;
        for (int64_t at = 0; at < g.k.classes; at += THREADS) {
            const int64_t some = g.k.classes - at < THREADS ? g.k.classes - at : (int64_t)THREADS;
            BARRIER();
            EACH_THREAD(w, t) if (t < some) dz[t] = g.at(row, at + t);
            BARRIER();
            EACH_THREAD(w, t) {
                const float *const weight = g.k.weight + at * g.k.width + first + t;
                for (int64_t c = 0; first + t < g.k.width && c < some; c++) sum[t] += dz[c] * weight[c * g.k.width];
            }
        }
        BARRIER();
        EACH_THREAD(w, t) if (first + t < g.k.width) give(&gx[row * g.k.width + first + t], (float)sum[t], acc);
    }
};

/* One block a class and THREADS of its channels: the gradients of its weights, and of its bias. */
template <class T> struct token_weights {
    token_gradient<T> g; float *gw, *gb; int64_t rows; bool acc; int tiles;
    DEVICE void block(const struct where &w) const
    {
        SHARED double dz[THREADS], sum[THREADS];
        SHARED double bias;
        const int64_t cls = w.block / tiles;
        const int first = w.block % tiles * THREADS;
        EACH_THREAD(w, t) {
            sum[t] = 0;
            if (t == 0) bias = 0;
        }
        for (int64_t at = 0; at < rows; at += THREADS) {
            const int64_t some = rows - at < THREADS ? rows - at : (int64_t)THREADS;
            BARRIER();
            EACH_THREAD(w, t) if (t < some) dz[t] = g.at(at + t, cls);
            BARRIER();
            EACH_THREAD(w, t) {
                for (int64_t r = 0; first + t < g.k.width && r < some; r++)
                    sum[t] += dz[r] * to_float(g.x[(at + r) * g.k.width + first + t]);
                for (int64_t r = 0; t == 0 && r < some; r++) bias += dz[r];
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            if (gw && first + t < g.k.width) give(&gw[cls * g.k.width + first + t], (float)sum[t], acc);
            if (gb && first + t == 0) give(&gb[cls], (float)bias, acc);
        }
    }
};

template <class T>
static int loss(void *stream, const struct k_tokens *k, const void *x, const struct k_tokens_out *o)
{
    const int status = launch(stream, k->n * k->points, THREADS, token_row<T>{*k, (const T *)x, o->kept, o->work});
    return status ? status : launch_one(stream, 3 * (size_t)k->n, token_sums{o->work, o->columns, k->points});
}

extern "C" int k_token_loss(void *stream, const struct k_tokens *k, const void *x, const struct k_tokens_out *o)
{
    return BY_TYPE(k->type, loss<float>(stream, k, x, o), loss<bf16>(stream, k, x, o));
}

template <class T>
static int loss_back(void *stream, const struct k_tokens *k, const void *x, const struct k_tokens_grad *g)
{
    const token_gradient<T> of = {*k, (const T *)x, g->block, g->kept};
    const int64_t rows = k->n * k->points;
    const int tiles = (int)div_up(k->width, THREADS);
    int status = 0;
    if (g->gx) status = launch(stream, rows * tiles, THREADS, token_back<T>{of, (T *)g->gx, g->acc, tiles});
    if (!status && (g->gw || g->gb))
        status = launch(stream, (int64_t)k->classes * tiles, THREADS,
                        token_weights<T>{of, g->gw, g->gb, rows, g->gp_acc, tiles});
    return status;
}

extern "C" int k_token_loss_back(void *stream, const struct k_tokens *k, const void *x, const struct k_tokens_grad *g)
{
    return BY_TYPE(k->type, loss_back<float>(stream, k, x, g), loss_back<bf16>(stream, k, x, g));
}
