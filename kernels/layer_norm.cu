/* Layer norm and RMS norm over the channels of each row of [rows][c]. One block a row. Weight gradients are sums over
 * rows: first over parts of the rows, then over the parts, so the order depends on the sizes alone. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

/* Saved values of a row. Heads of RMS norm lie before points. */
DEVICE int64_t rms_at(const struct k_layer_norm &k, int64_t row)
{
    const int64_t point = row / k.heads, n = point / k.points;
    return (n * k.heads + row % k.heads) * k.points + point % k.points;
}
DEVICE double mean_of(const struct k_layer_norm &k, const float *saved, int64_t row)
{
    return k.heads ? 0 : saved[2 * row];
}
DEVICE double inv_of(const struct k_layer_norm &k, const float *saved, int64_t row)
{
    return k.heads ? saved[rms_at(k, row)] : saved[2 * row + 1];
}

template <class T> struct layer_norm_kernel {
    struct k_layer_norm k; const T *x; T *y; float *saved;
    DEVICE void block(const struct where &w) const
    {
        const T *const row = x + (int64_t)w.block * k.c;
        T *const to = y + (int64_t)w.block * k.c;
        const double mean = k.heads ? 0 : block_sum(w, [&](int t) {
            double sum = 0;
            for (int i = t; i < k.c; i += w.threads) sum += to_float(row[i]);
            return sum;
        }) / k.c;
        const double var = block_sum(w, [&](int t) {
            double sum = 0;
            for (int i = t; i < k.c; i += w.threads) sum += (to_float(row[i]) - mean) * (to_float(row[i]) - mean);
            return sum;
        }) / k.c;
        const double inv = 1 / sqrt(var + k.eps);
        EACH_THREAD(w, t) {
            for (int i = t; i < k.c; i += w.threads)
                from_float(&to[i], (float)((to_float(row[i]) - mean) * inv * k.weight[i] + (k.bias ? k.bias[i] : 0)));
            if (t == 0 && k.heads) saved[rms_at(k, w.block)] = (float)inv;
            else if (t == 0) {
                saved[2 * (int64_t)w.block] = (float)mean;
                saved[2 * (int64_t)w.block + 1] = (float)inv;
            }
        }
    }
};

template <class T> struct layer_norm_back {
    struct k_layer_norm k; const T *x, *gy; T *gx; const float *saved; bool acc;
    DEVICE void block(const struct where &w) const
    {
        const int64_t at = (int64_t)w.block * k.c;
        const double mean = mean_of(k, saved, w.block), inv = inv_of(k, saved, w.block);
        const double sum = k.heads ? 0 : block_sum(w, [&](int t) {
            double v = 0;
            for (int i = t; i < k.c; i += w.threads) v += (double)to_float(gy[at + i]) * k.weight[i];
            return v;
        }) / k.c;
        const double dot = block_sum(w, [&](int t) {
            double v = 0;
            for (int i = t; i < k.c; i += w.threads)
                v += (double)to_float(gy[at + i]) * k.weight[i] * ((to_float(x[at + i]) - mean) * inv);
            return v;
        }) / k.c;
        EACH_THREAD(w, t) {
            for (int i = t; i < k.c; i += w.threads) {
                const double hat = (to_float(x[at + i]) - mean) * inv;
                give(&gx[at + i], (float)(inv * ((double)to_float(gy[at + i]) * k.weight[i] - sum - hat * dot)), acc);
            }
        }
    }
};

/* Rows of a part: at most MOST_PARTS parts, so that a fixed workspace is enough for any number of rows. */
enum { LEAST_ROWS = 128, MOST_PARTS = 512 };
static int64_t part_rows(int64_t rows)
{
    const int64_t least = div_up(rows, MOST_PARTS);
    return least > LEAST_ROWS ? least : (int64_t)LEAST_ROWS;
}

template <class T> struct layer_norm_part {
    struct k_layer_norm k; const T *x, *gy; const float *saved; double *part; int64_t per;
    DEVICE void one(size_t i) const
    {
        const int64_t c = k.c, rows = k.rows;
        const int64_t p = (int64_t)(i / (size_t)c), ch = (int64_t)(i % (size_t)c);
        const int64_t to = (p + 1) * per < rows ? (p + 1) * per : rows;
        double sum = 0, dot = 0;
        for (int64_t r = p * per; r < to; r++) {
            const double g = to_float(gy[r * c + ch]);
            sum += g;
            dot += g * (((double)to_float(x[r * c + ch]) - mean_of(k, saved, r)) * inv_of(k, saved, r));
        }
        part[2 * i] = dot;
        part[2 * i + 1] = sum;
    }
};

struct layer_norm_sum {
    const double *part; float *gw, *gb; int64_t parts; int c; bool acc;
    DEVICE void one(size_t ch) const
    {
        double dot = 0, sum = 0;
        for (int64_t p = 0; p < parts; p++) {
            dot += part[2 * ((size_t)p * (size_t)c + ch)];
            sum += part[2 * ((size_t)p * (size_t)c + ch) + 1];
        }
        if (gw) give(&gw[ch], (float)dot, acc);
        if (gb) give(&gb[ch], (float)sum, acc);
    }
};

extern "C" size_t k_layer_norm_work(int64_t rows, int c)
{
    return 2 * sizeof(double) * (size_t)div_up(rows, part_rows(rows)) * (size_t)c;
}

extern "C" int k_layer_norm(void *stream, const struct k_layer_norm *k, const void *x, void *y, float *saved)
{
    return BY_TYPE(k->type,
                   launch(stream, k->rows, THREADS, layer_norm_kernel<float>{*k, (const float *)x, (float *)y, saved}),
                   launch(stream, k->rows, THREADS, layer_norm_kernel<bf16>{*k, (const bf16 *)x, (bf16 *)y, saved}));
}

template <class T>
static int back(void *stream, const struct k_layer_norm *k, const void *x, const struct k_grad *g, const float *saved)
{
    return launch(stream, k->rows, THREADS,
                  layer_norm_back<T>{*k, (const T *)x, (const T *)g->gy, (T *)g->gx, saved, g->acc});
}

extern "C" int k_layer_norm_back(void *stream, const struct k_layer_norm *k, const void *x, const struct k_grad *g,
                                 const float *saved)
{
    return BY_TYPE(k->type, back<float>(stream, k, x, g, saved), back<bf16>(stream, k, x, g, saved));
}

template <class T> static int parts_of(void *stream, const struct k_layer_norm *k, const struct k_layer_norm_grad *g)
{
    const int64_t per = part_rows(k->rows);
    return launch_one(stream, (size_t)(div_up(k->rows, per) * k->c),
                      layer_norm_part<T>{*k, (const T *)g->x, (const T *)g->gy, g->saved, (double *)g->work, per});
}

extern "C" int k_layer_norm_weights(void *stream, const struct k_layer_norm *k, const struct k_layer_norm_grad *g)
{
    const int64_t parts = div_up(k->rows, part_rows(k->rows));
    const int bad = BY_TYPE(k->type, parts_of<float>(stream, k, g), parts_of<bf16>(stream, k, g));
    return bad ? bad : launch_one(stream, (size_t)k->c,
                                  layer_norm_sum{(const double *)g->work, g->gw, g->gb, parts, k->c, g->acc});
}
