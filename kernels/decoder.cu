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

/* What a thread knows of the logits that it read: the largest, where it was first, and the sum of e^(logit - it). */
struct token_part {
    float most; int first; double sum;
    DEVICE void add(float z, int at)
    {
        if (z > most || z != z) {
            sum = sum * expf(most - z) + 1;
            most = z;
            first = at;
        } else {
            sum += z == most ? 1.0f : expf(z - most);
        }
    }
    /* its sum as part of a sum with a larger logit */
    DEVICE double of(float largest) const { return sum * (most == largest ? 1.0f : expf(most - largest)); }
};

/* One block a row reads its logits once for loss and hit, and once more for their gradients, which may overwrite them.
 * columns: double[rows][3], of the row. */
template <class T> struct token_row {
    struct k_tokens k; const float *z; float *kept; double *columns; const struct be_block *of; T *dz;
    DEVICE float logit(int64_t row, int c) const { return z[row * k.line + c] + (k.bias ? k.bias[c] : 0.0f); }
    DEVICE void block(const struct where &w) const
    {
        SHARED token_part part[THREADS];
        const int64_t row = w.block, label = label_of(k, row);
        const bool known = label >= 0 && label < k.classes, counts = label != k.ignore;
        EACH_THREAD(w, t) {
            token_part p = {-INFINITY, 0, 0};
            for (int c = t; c < k.classes; c += w.threads) p.add(logit(row, c), c);
            part[t] = p;
        }
        const float right = known ? logit(row, (int)label) : NAN;
        const float most = (float)block_max(w, [&](int t) { return (double)part[t].most; });
        const double sum = block_sum(w, [&](int t) { return part[t].of(most); });
        const double first = -block_max(w, [&](int t) {
            return part[t].most == most ? -(double)part[t].first : -INFINITY;
        });
        const float times = (float)(1 / sum);
        EACH_THREAD(w, t) {
            if (t) continue;
            kept[2 * row] = most;
            kept[2 * row + 1] = times;
            columns[3 * row] = counts ? most + log(sum) - right : 0;
            columns[3 * row + 1] = counts && first == (double)label;
            columns[3 * row + 2] = counts;
        }
        if (!dz) return;
        const float seed = (float)of->inv_weight;
        EACH_THREAD(w, t) {
            for (int c = t; c < k.classes; c += w.threads) {
                const float p = expf(logit(row, c) - most) * times;
                from_float(&dz[row * k.line + c], counts ? (p - (float)(c == label)) * seed : 0.0f);
            }
        }
    }
};

extern "C" int k_token_rows(void *stream, const struct k_tokens *k, int64_t rows, const float *z,
                            const struct k_token_rows *o)
{
    const struct k_token_rows &to = *o;
    const token_row<float> wide = {*k, z, to.kept, to.columns, to.block, (float *)to.dz};
    const token_row<bf16> narrow = {*k, z, to.kept, to.columns, to.block, (bf16 *)to.dz};
    return BY_TYPE(k->type, launch(stream, rows, THREADS, wide), launch(stream, rows, THREADS, narrow));
}

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

extern "C" int k_token_sums(void *stream, int64_t n, int points, const double *rows, double *columns)
{
    return launch_one(stream, 3 * (size_t)n, token_sums{rows, columns, points});
}

template <class T> struct token_bias {
    const T *dz; float *gb; int64_t rows; int line; bool acc;
    DEVICE void one(size_t i) const
    {
        float sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += to_float(dz[r * line + (int64_t)i]);
        give(&gb[i], sum, acc);
    }
};

extern "C" int k_token_bias(void *stream, const struct k_tokens *k, int64_t rows, const void *dz, float *gb, bool acc)
{
    const size_t n = (size_t)k->classes;
    return BY_TYPE(k->type, launch_one(stream, n, token_bias<float>{(const float *)dz, gb, rows, k->line, acc}),
                   launch_one(stream, n, token_bias<bf16>{(const bf16 *)dz, gb, rows, k->line, acc}));
}
