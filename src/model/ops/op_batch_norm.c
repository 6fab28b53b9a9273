/* Batch norm (Ioffe and Szegedy): y = (x - mean) / sqrt(var + eps) * weight + bias per channel. Training uses the
 * micro-batch's statistics with the biased variance. Running statistics use the unbiased variance, and only the
 * optimizer action changes them (R4). */
#include <math.h>
#include <string.h>
#include "model/ops/batch_norm.h"

enum { A_EPS, A_MOMENTUM };
static const struct attr_kind attrs[] = {
    {"eps", A_REAL, 1e-5, 1e-12, 1, "added to the variance"},
    {"momentum", A_REAL, 0.1, 0, 1, "weight of a new value in the running statistics"},
    {NULL},
};
double bn_eps(const struct node *n) { return n->attr[A_EPS].r; }

static int batch_norm_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct shape c = {1, {in[0]->d[0]}};
    f->n_param = 5;
    f->param[BN_WEIGHT] = (struct infer_param){"weight", c, INIT_ONE};
    f->param[BN_BIAS] = (struct infer_param){"bias", c};
    f->param[BN_MEAN] = (struct infer_param){"running_mean", c, .kind = PARAM_STAT};
    f->param[BN_VAR] = (struct infer_param){"running_var", c, INIT_ONE, .kind = PARAM_STAT};
    f->param[BN_COUNT] = (struct infer_param){"num_batches_tracked", .kind = PARAM_COUNTER, .type = I64};
    return 0;
}

static size_t saved_bytes(const struct graph *g, const struct node *n, int samples)
{
    return 2 * sizeof(double) * (size_t)g->tensor[n->out].shape.d[0];
}

static void statistics(const struct op_call *c, struct extent d, int64_t ch, struct bn_saved to)
{
    const float *x = c->in[0];
    double sum = 0, sq = 0, count = (double)d.n * (double)d.points;
    CHANNEL_EACH(d, ch, at) sum += x[at];
    const double mean = sum / count;
    CHANNEL_EACH(d, ch, at) sq += (x[at] - mean) * (x[at] - mean);
    to.mean[ch] = mean;
    to.var[ch] = sq / count;
}

static void batch_norm_forward(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const float *w = c->param[BN_WEIGHT], *b = c->param[BN_BIAS], *rm = c->param[BN_MEAN], *rv = c->param[BN_VAR];
    const float *x = c->in[0];
    for (int64_t ch = 0; ch < d.c; ch++) {
        double mean, inv;
        if (c->train) {
            struct bn_saved own = bn_saved_at(c->saved, d.c);
            statistics(c, d, ch, own);
            mean = own.mean[ch];
            inv = 1 / sqrt(own.var[ch] + bn_eps(c->node));
        } else {
            mean = rm[ch];
            inv = 1 / sqrt(rv[ch] + bn_eps(c->node));
        }
        CHANNEL_EACH(d, ch, at) ((float *)c->out)[at] = (float)((x[at] - mean) * inv * w[ch] + b[ch]);
    }
}

/* With running statistics, which are constants: dx = w inv_std dy. No other gradients are needed (node.fixed). */
static void backward_fixed(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const float *gy = c->gout, *w = c->param[BN_WEIGHT], *var = c->param[BN_VAR];
    for (int64_t ch = 0; ch < d.c; ch++) {
        double scale = w[ch] * (1 / sqrt(var[ch] + bn_eps(c->node)));
        CHANNEL_EACH(d, ch, at) ((float *)c->gin[0])[at] = (float)(scale * gy[at]);
    }
}

/* dx = w inv_std (dy - mean(dy) - xhat mean(dy xhat)); dw = sum dy xhat; db = sum dy. */
static void batch_norm_backward_data(const struct op_call *c)
{
    if (!c->train) { backward_fixed(c); return; }
    const struct extent d = extent_out(c);
    struct bn_saved x = bn_saved_at(c->saved, d.c);
    const float *in = c->in[0], *gy = c->gout, *w = c->param[BN_WEIGHT];
    double count = (double)d.n * (double)d.points;
    for (int64_t ch = 0; ch < d.c; ch++) {
        double sum = 0, dot = 0, mean = x.mean[ch], inv = 1 / sqrt(x.var[ch] + bn_eps(c->node));
        CHANNEL_EACH(d, ch, at) {
            sum += gy[at];
            dot += (double)gy[at] * (in[at] - mean) * inv;
        }
        if (c->pgrad[BN_WEIGHT]) ((float *)c->pgrad[BN_WEIGHT])[ch] = (float)dot;
        if (c->pgrad[BN_BIAS]) ((float *)c->pgrad[BN_BIAS])[ch] = (float)sum;
        if (!c->gin[0]) continue;
        CHANNEL_EACH(d, ch, at) {
            double hat = (in[at] - mean) * inv;
            ((float *)c->gin[0])[at] = (float)(w[ch] * inv * (gy[at] - sum / count - hat * dot / count));
        }
    }
}

static void running_update(float *running, double value, double momentum)
{
    *running = (float)((1 - momentum) * *running + momentum * value);
}

/* micro: one update per micro-batch, in order, like gradient accumulation in PyTorch. deferred: one update per step
 * with the statistics of all samples, merged pairwise (Chan, Golub, LeVeque 1979). */
static void stats(const struct op_stats *a)
{
    const struct extent d = extent_of(a->g, a->node->out, 1);
    double mom = a->node->attr[A_MOMENTUM].r;
    float *running_mean = a->param[BN_MEAN], *running_var = a->param[BN_VAR];
    for (int64_t ch = 0; ch < d.c; ch++) {
        double count = 0, mean = 0, m2 = 0;
        for (int i = 0; i < a->n_mb; i++) {
            struct bn_saved x = bn_saved_at((void *)(uintptr_t)a->saved[i], d.c);
            double k = (double)a->ns[i] * (double)d.points, delta = x.mean[ch] - mean;
            if (a->deferred) {
                m2 += x.var[ch] * k + delta * delta * count * k / (count + k);
                mean += delta * k / (count + k);
                count += k;
                continue;
            }
            running_update(running_mean + ch, x.mean[ch], mom);
            running_update(running_var + ch, x.var[ch] * k / (k - 1), mom);
        }
        if (!a->deferred) continue;
        running_update(running_mean + ch, mean, mom);
        running_update(running_var + ch, m2 / (count - 1), mom);
    }
    *(int64_t *)a->param[BN_COUNT] += a->deferred ? 1 : a->n_mb;
}

static const char *const examples[] = {"3x4x4", "16x5x5", "2x3", "4x2x3x2", "32x4x4 eps=0.001", NULL};

const struct op_kind op_batch_norm = {
    .name = "batch_norm",
    .text = "normalisation over micro-batch and space",
    .category = OP_NORM,
    .keeps_layout = true,
    .attr = attrs,
    .infer = batch_norm_infer,
    .saved_bytes = saved_bytes,
    .need_b = 1 << 0 | NEED_SAVED,
    .pgrad_in_b = 1 << BN_WEIGHT | 1 << BN_BIAS,
    .forward = batch_norm_forward,
    .backward_data = batch_norm_backward_data,
    .stats = stats,
    .examples = examples,
};
