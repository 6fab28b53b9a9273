/* Layer norm (Ba and others 2016): y = (x - mean) / sqrt(var + eps) * weight + bias over the channels of each point, as
 * torch.nn.LayerNorm(channels, bias=...) with channels last. The variance is the biased one. */
#include <math.h>
#include "model/ops/layer_norm.h"
#include "model/ops/tile.h"

static const struct attr_kind attrs[] = {
    {"eps", A_REAL, 1e-5, 1e-12, 1, "added to the variance"}, {"bias", A_BOOL, 1, 0, 1, "add a bias"}, {NULL}};

static int layer_norm_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->n_param = layer_norm_biased(n) ? 2 : 1;
    f->param[0] = (struct infer_param){"weight", {1, {in[0]->d[0]}}, INIT_ONE};
    f->param[1] = (struct infer_param){"bias", {1, {in[0]->d[0]}}};
    return 0;
}

static size_t saved_bytes(const struct graph *g, const struct node *n, int samples)
{
    return 2 * sizeof(float) * (size_t)samples * (size_t)extent_of(g, n->out, 1).points;
}

/* Backends use these loops, too: this vectorises them where the order of sums does not matter. Consecutive channels of
 * a tile are `points` apart. */
#pragma GCC optimize("O3")

/* Means of x, or of (x - mean)^2, over the channels of some points. */
static void tile_sum(const struct extent *d, const float *x, int some, const double *mean, double sum[TILE])
{
    for (int i = 0; i < some; i++) sum[i] = 0;
    for (int64_t c = 0; c < d->c; c++, x += d->points)
        for (int i = 0; i < some; i++) {
            double v = mean ? x[i] - mean[i] : x[i];
            sum[i] += mean ? v * v : v;
        }
    for (int i = 0; i < some; i++) sum[i] /= (double)d->c;
}

static void layer_norm_forward(const struct op_call *call)
{
    const struct extent d = extent_out(call);
    const float *w = call->param[0], *b = layer_norm_biased(call->node) ? call->param[1] : NULL;
    const double eps = layer_norm_eps(call->node);
    for (int64_t n = 0; n < d.n; n++)
        for (int64_t p = 0; p < d.points; p += TILE) {
            const float *x = (const float *)call->in[0] + n * d.c * d.points + p;
            float *y = (float *)call->out + n * d.c * d.points + p,
                  *kept = (float *)call->saved + 2 * (n * d.points + p);
            double mean[TILE], inv[TILE];
            int some = tile_size(d.points, p);
            tile_sum(&d, x, some, NULL, mean);
            tile_sum(&d, x, some, mean, inv);
            for (int i = 0; i < some; i++) {
                inv[i] = 1 / sqrt(inv[i] + eps);
                kept[2 * i] = (float)mean[i];
                kept[2 * i + 1] = (float)inv[i];
            }
            for (int64_t c = 0; c < d.c; c++)
                for (int i = 0; i < some; i++)
                    y[c * d.points + i] = (float)((x[c * d.points + i] - mean[i]) * inv[i] * w[c] + (b ? b[c] : 0));
        }
}

/* dx = inv_std (g - mean(g) - xhat mean(g xhat)), g = weight dy. */
static void layer_norm_backward_data(const struct op_call *call)
{
    const struct extent d = extent_out(call);
    const float *w = call->param[0];
    for (int64_t n = 0; n < d.n; n++)
        for (int64_t p = 0; p < d.points; p += TILE) {
            int64_t at = n * d.c * d.points + p;
            const float *x = (const float *)call->in[0] + at, *gy = (const float *)call->gout + at,
                        *kept = (const float *)call->saved + 2 * (n * d.points + p);
            float *gx = (float *)call->gin[0] + at;
            double sum[TILE] = {0}, dot[TILE] = {0};
            int some = tile_size(d.points, p);
            for (int64_t c = 0; c < d.c; c++)
                for (int i = 0; i < some; i++) {
                    double g = (double)gy[c * d.points + i] * w[c];
                    sum[i] += g;
                    dot[i] += g * ((x[c * d.points + i] - kept[2 * i]) * kept[2 * i + 1]);
                }
            for (int64_t c = 0; c < d.c; c++)
                for (int i = 0; i < some; i++) {
                    double hat = (x[c * d.points + i] - kept[2 * i]) * kept[2 * i + 1];
                    double g = (double)gy[c * d.points + i] * w[c];
                    gx[c * d.points + i] =
                        (float)(kept[2 * i + 1] * (g - sum[i] / (double)d.c - hat * dot[i] / (double)d.c));
                }
        }
}

static void layer_norm_backward_weights(const struct op_call *call)
{
    const struct extent d = extent_out(call);
    for (int64_t c = 0; c < d.c; c++) {
        double sum = 0, dot = 0;
        for (int64_t n = 0; n < d.n; n++) {
            const float *x = (const float *)call->in[0] + (n * d.c + c) * d.points,
                        *gy = (const float *)call->gout + (n * d.c + c) * d.points,
                        *kept = (const float *)call->saved + 2 * n * d.points;
            for (int64_t p = 0; p < d.points; p++) {
                sum += gy[p];
                dot += (double)gy[p] * ((x[p] - kept[2 * p]) * kept[2 * p + 1]);
            }
        }
        if (call->pgrad[0]) ((float *)call->pgrad[0])[c] = (float)dot;
        if (layer_norm_biased(call->node) && call->pgrad[1]) ((float *)call->pgrad[1])[c] = (float)sum;
    }
}

static const char *const examples[] = {"6", "16x3x3", "5x40 eps=0.01", "7x2x2x2", "24x35", "9x5 bias=no", NULL};
const struct op_kind op_layer_norm = {
    .name = "layer_norm",
    .text = "normalisation over the channels of each point",
    .attr = attrs,
    .infer = layer_norm_infer,
    .saved_bytes = saved_bytes,
    .need_b = 1 << 0 | NEED_SAVED,
    .need_w = 1 << 0 | NEED_SAVED,
    .forward = layer_norm_forward,
    .backward_data = layer_norm_backward_data,
    .backward_weights = layer_norm_backward_weights,
    .examples = examples,
};
