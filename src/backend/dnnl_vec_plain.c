/* Vector kernels for plain layout on any CPU: a block is a channel, lanes 1. */
#include <string.h>
#include "backend/dnnl_vec.h"

static const float *plane_at(const struct vec_shape *s, const float *x, int n, int64_t c) { return x + (n * s->blocks + c) * s->points; }

static double channel_mean(const struct vec_shape *s, const float *x, int64_t c)
{
    double sum = 0;
    for (int n = 0; n < s->n; n++) {
        const float *v = plane_at(s, x, n, c);
        for (int64_t p = 0; p < s->points; p++) sum += v[p];
    }
    return sum / ((double)s->n * (double)s->points);
}

static void norm_stats(const struct vec_norm *a, double *mean, double *var)
{
    const struct vec_shape *s = &a->s;
    for (int64_t c = a->from; c < a->to; c++) {
        double m = mean[c] = channel_mean(s, a->x, c), sq = 0;
        for (int n = 0; n < s->n; n++) {
            const float *v = plane_at(s, a->x, n, c);
            for (int64_t p = 0; p < s->points; p++) sq += (v[p] - m) * (v[p] - m);
        }
        var[c] = sq / ((double)s->n * (double)s->points);
    }
}

static void norm_forward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++)
        for (int n = a->s.n - 1; n >= 0; n--) {          /* backwards: what the first pass read last is still in the cache */
            int64_t at = (n * a->s.blocks + c) * a->s.points;
            float mean = a->mean[c], scale = a->scale[c], beta = a->beta[c];
            for (int64_t i = at; i < at + a->s.points; i++) {
                float v = (a->x[i] - mean) * scale + beta;
                if (a->other) v += a->other[i];
                a->y[i] = a->relu && v < 0 ? 0 : v;
            }
        }
}

/* As in norm_forward, so that the recomputed output has the sign of the stored one. */
static float masked(const struct vec_norm *a, int64_t i, int64_t c)
{
    if (a->mask == MASK_OUT) return a->out[i] <= 0 ? 0 : a->gout[i];
    if (a->mask == MASK_AGAIN) return (a->x[i] - a->mean[c]) * a->scale[c] + a->beta[c] <= 0 ? 0 : a->gout[i];
    return a->gout[i];
}

static void norm_reduce(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++) {
        double sum = 0, sumx = 0;
        for (int n = 0; n < a->s.n; n++) {
            int64_t at = (n * a->s.blocks + c) * a->s.points;
            for (int64_t i = at; i < at + a->s.points; i++) {
                float g = masked(a, i, c);
                sum += g;
                sumx += (double)g * (a->x[i] - a->mean[c]);
                if (a->gother) a->gother[i] = (a->gother_acc ? a->gother[i] : 0) + g;
            }
        }
        a->sum_g[c] = sum;
        a->sum_gx[c] = sumx;
    }
}

static void norm_backward(const struct vec_norm *a)
{
    for (int64_t c = a->from; c < a->to; c++)
        for (int n = a->s.n - 1; n >= 0; n--) {          /* backwards: what the first pass read last is still in the cache */
            int64_t at = (n * a->s.blocks + c) * a->s.points;
            for (int64_t i = at; i < at + a->s.points; i++) {
                float d = a->scale[c] * masked(a, i, c) - a->c0[c] - (a->x[i] - a->mean[c]) * a->c1[c];
                a->gx[i] = (a->gx_acc ? a->gx[i] : 0) + d;
            }
        }
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void sum(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void relu(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(float *gx, const float *y, const float *g, size_t n, bool acc)
{
    for (size_t i = 0; i < n; i++) gx[i] = (acc ? gx[i] : 0) + (y[i] <= 0 ? 0 : g[i]);
}

static double sumsq(const float *x, size_t n)
{
    double lane[4] = {0};
    for (size_t i = 0; i < n; i++) lane[i % 4] += (double)x[i] * x[i];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

static void mean(const struct vec_shape *s, const float *x, float *y)
{
    for (int64_t k = 0; k < s->n * s->blocks; k++) {
        double total = 0;
        for (int64_t p = 0; p < s->points; p++) total += *x++;
        y[k] = (float)(total / (double)s->points);
    }
}

static void mean_backward(const struct vec_shape *s, const float *gy, float *gx, bool acc)
{
    float scale = 1.0f / (float)s->points;
    for (int64_t k = 0; k < s->n * s->blocks; k++)
        for (int64_t p = 0; p < s->points; p++, gx++) *gx = (acc ? *gx : 0) + gy[k] * scale;
}

static int64_t window_at(const struct vec_pool *p, int dim, int64_t out, int64_t k)
{
    int64_t at = out * p->stride[dim] - p->padding[dim] + k;
    return at < p->in[dim] ? at : -1;
}

static void window_max(const struct vec_pool *p, const float *x, int64_t h, int64_t w, float *y, uint8_t *index)
{
    bool first = true;
    for (int64_t i = 0; i < p->kernel[0]; i++)
        for (int64_t j = 0; j < p->kernel[1]; j++) {
            int64_t r = window_at(p, 0, h, i), c = window_at(p, 1, w, j);
            if (r < 0 || c < 0) continue;
            float v = x[r * p->in[1] + c];
            if (!first && !(v > *y) && v == v) continue;
            first = false;
            *y = v;
            if (index) *index = (uint8_t)(i * p->kernel[1] + j);
        }
}

static void max_pool(const struct vec_pool *p, const float *x, float *y, uint8_t *index)
{
    for (int64_t k = 0; k < p->planes; k++, x += p->in[0] * p->in[1])
        for (int64_t h = 0; h < p->out[0]; h++)
            for (int64_t w = 0; w < p->out[1]; w++) window_max(p, x, h, w, y++, index ? index++ : NULL);
}

static void max_pool_backward(const struct vec_pool *p, const uint8_t *index, const float *gy, float *gx, bool acc)
{
    if (!acc) memset(gx, 0, (size_t)(p->planes * p->in[0] * p->in[1]) * sizeof *gx);
    for (int64_t k = 0; k < p->planes; k++, gx += p->in[0] * p->in[1])
        for (int64_t h = 0; h < p->out[0]; h++)
            for (int64_t w = 0; w < p->out[1]; w++, index++, gy++) {
                int64_t r = window_at(p, 0, h, *index / p->kernel[1]), c = window_at(p, 1, w, *index % p->kernel[1]);
                gx[r * p->in[1] + c] += *gy;
            }
}

const struct vec_ops vec_plain = {
    .lanes = 1, .norm_stats = norm_stats, .norm_forward = norm_forward, .norm_reduce = norm_reduce, .norm_backward = norm_backward,
    .add = add, .sum = sum, .relu = relu, .relu_backward = relu_backward, .sumsq = sumsq,
    .mean = mean, .mean_backward = mean_backward, .max_pool = max_pool, .max_pool_backward = max_pool_backward,
};
