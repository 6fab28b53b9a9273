/* Softmax over the channels of each point: y_c = e^(x_c) / sum e^x, as torch.nn.Softmax(dim=1). With `log` its
 * logarithm, x_c - log sum e^x, as torch.nn.LogSoftmax(dim=1). */
#include <math.h>
#include "model/ops/softmax.h"
#include "model/ops/tile.h"

static const struct attr_kind attrs[] = {{"log", A_BOOL, 0, 0, 1, "its logarithm"}, {NULL}};

/* Backends use these loops, too: this vectorises them where the order of sums does not matter. Consecutive channels of
 * a tile are `points` apart. */
#pragma GCC optimize("O3")

static void tile_most(const struct extent *d, const float *x, float *most, int some)
{
    for (int i = 0; i < some; i++) most[i] = x[i];
    for (int64_t c = 1; c < d->c; c++)
        for (int i = 0; i < some; i++) most[i] = x[c * d->points + i] > most[i] ? x[c * d->points + i] : most[i];
}

static void tile_forward(const struct extent *d, const float *x, float *y, int some)
{
    float most[TILE];
    double sum[TILE] = {0};
    tile_most(d, x, most, some);
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) {
            const float v = (float)exp((double)x[c * d->points + i] - most[i]);
            sum[i] += y[c * d->points + i] = v;
        }
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) y[c * d->points + i] = (float)(y[c * d->points + i] / sum[i]);
}

static void tile_log_forward(const struct extent *d, const float *x, float *y, int some)
{
    float most[TILE];
    double sum[TILE] = {0};
    tile_most(d, x, most, some);
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) sum[i] += exp((double)x[c * d->points + i] - most[i]);
    for (int i = 0; i < some; i++) sum[i] = most[i] + log(sum[i]);
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) y[c * d->points + i] = (float)(x[c * d->points + i] - sum[i]);
}

static void softmax_forward(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const bool logs = softmax_is_log(c->node);
    for (int64_t n = 0; n < d.n; n++)
        for (int64_t p = 0; p < d.points; p += TILE) {
            const int64_t at = n * d.c * d.points + p;
            (logs ? tile_log_forward : tile_forward)(&d, (const float *)c->in[0] + at, (float *)c->out + at,
                                                     tile_size(d.points, p));
        }
}

/* dx_k = y_k (g_k - sum_c g_c y_c) */
static void tile_backward(const struct extent *d, const float *y, const float *gy, float *gx, int some)
{
    double sum[TILE] = {0};
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) sum[i] += (double)gy[c * d->points + i] * y[c * d->points + i];
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) {
            const int64_t at = c * d->points + i;
            gx[at] = (float)(y[at] * (gy[at] - sum[i]));
        }
}

/* dx_k = g_k - e^(y_k) sum_c g_c */
static void tile_log_backward(const struct extent *d, const float *y, const float *gy, float *gx, int some)
{
    double sum[TILE] = {0};
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) sum[i] += gy[c * d->points + i];
    for (int64_t c = 0; c < d->c; c++)
        for (int i = 0; i < some; i++) {
            const int64_t at = c * d->points + i;
            gx[at] = (float)(gy[at] - exp((double)y[at]) * sum[i]);
        }
}

static void softmax_backward_data(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const bool logs = softmax_is_log(c->node);
    for (int64_t n = 0; n < d.n; n++)
        for (int64_t p = 0; p < d.points; p += TILE) {
            const int64_t at = n * d.c * d.points + p;
            (logs ? tile_log_backward : tile_backward)
                (&d, (const float *)c->out + at, (const float *)c->gout + at, (float *)c->gin[0] + at,
                 tile_size(d.points, p));
        }
}

static const char *const examples[] = {"7", "16x3x3", "1x5", "3x2x3x6", "4x41",
                                       "7 log=yes", "16x3x3 log=yes", "1x5 log=yes", "4x41 log=yes", NULL};
const struct op_kind op_softmax = {
    .name = "softmax",
    .text = "softmax over the channels of each point",
    .need_b = NEED_OUT,
    .attr = attrs,
    .forward = softmax_forward,
    .backward_data = softmax_backward_data,
    .examples = examples,
};
