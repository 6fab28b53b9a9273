/* Group norm (Wu and He 2018): y = (x - mean) / sqrt(var + eps) * weight + bias, per sample. Mean and variance are over
 * the channels of a group and all points. The variance is the biased one. */
#include <math.h>
#include "model/ops/group_norm.h"

struct group_norm group_norm_of(const struct graph *g, const struct node *n)
{
    const struct shape *s = &g->tensor[n->out].shape;
    const struct attr_value *groups = node_attr(n, "groups");
    const int64_t count = groups ? groups->i[0] : s->d[0];
    return (struct group_norm){s->d[0], shape_count(s) / s->d[0], count, s->d[0] / count, node_attr(n, "eps")->r,
                               node_attr(n, "affine")->i[0] != 0};
}

int group_norm_infer(const struct node *n, const struct shape *in, int64_t groups, struct infer *f, struct err *e)
{
    if (groups < 1 || in->d[0] % groups)
        return err_set(e, E_CONF, "%lld groups do not divide %lld channels", (long long)groups, (long long)in->d[0]);
    if (shape_count(in) == groups)
        return err_set(e, E_CONF, "a group has one value per sample, its own mean: all results would be 0");
    f->n_param = node_attr(n, "affine")->i[0] ? 2 : 0;
    f->param[GN_WEIGHT] = (struct infer_param){"weight", {1, {in->d[0]}}, INIT_ONE};
    f->param[GN_BIAS] = (struct infer_param){"bias", {1, {in->d[0]}}};
    return 0;
}

size_t group_norm_saved(const struct graph *g, const struct node *n, int samples)
{
    return 2 * sizeof(double) * (size_t)samples * (size_t)group_norm_of(g, n).groups;
}

static void moments(const float *x, int64_t count, double eps, double *mean, double *inv)
{
    double sum = 0, sq = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++) sq += (x[i] - *mean) * (x[i] - *mean);
    *inv = 1 / sqrt(sq / (double)count + eps);
}

void group_norm_forward(const struct op_call *c)
{
    const struct group_norm d = group_norm_of(c->g, c->node);
    const float *w = d.affine ? c->param[GN_WEIGHT] : NULL, *b = d.affine ? c->param[GN_BIAS] : NULL, *x = c->in[0];
    float *y = c->out;
    double *kept = c->saved;
    for (int64_t i = 0; i < c->n * d.groups; i++) {
        double mean, inv;
        moments(x, d.width * d.points, d.eps, &mean, &inv);
        for (int64_t k = 0; k < d.width * d.points; k++) {
            const int64_t ch = i % d.groups * d.width + k / d.points;
            *y++ = (float)((*x++ - mean) * inv * (w ? w[ch] : 1) + (b ? b[ch] : 0));
        }
        if (kept) kept[2 * i] = mean, kept[2 * i + 1] = inv;
    }
}

/* dw = sum g xhat, db = sum g per channel, over all samples. */
static void weights(const struct op_call *c, struct group_norm d)
{
    const double *kept = c->saved;
    for (int64_t ch = 0; ch < d.c; ch++) {
        double sum = 0, dot = 0;
        for (int64_t n = 0; n < c->n; n++) {
            const double *k = kept + 2 * (n * d.groups + ch / d.width);
            const float *x = (const float *)c->in[0] + (n * d.c + ch) * d.points,
                        *gy = (const float *)c->gout + (n * d.c + ch) * d.points;
            for (int64_t p = 0; p < d.points; p++) {
                sum += gy[p];
                dot += gy[p] * ((x[p] - k[0]) * k[1]);
            }
        }
        if (c->pgrad[GN_WEIGHT]) ((float *)c->pgrad[GN_WEIGHT])[ch] = (float)dot;
        if (c->pgrad[GN_BIAS]) ((float *)c->pgrad[GN_BIAS])[ch] = (float)sum;
    }
}

/* dx = inv (t - mean(t) - xhat mean(t xhat)), t = weight g. */
void group_norm_backward(const struct op_call *c)
{
    const struct group_norm d = group_norm_of(c->g, c->node);
    const int64_t count = d.width * d.points;
    const float *w = d.affine ? c->param[GN_WEIGHT] : NULL;
    if (d.affine && (c->pgrad[GN_WEIGHT] || c->pgrad[GN_BIAS])) weights(c, d);
    for (int64_t i = 0; c->gin[0] && i < c->n * d.groups; i++) {
        const double *kept = (const double *)c->saved + 2 * i;
        const float *x = (const float *)c->in[0] + i * count, *gy = (const float *)c->gout + i * count;
        double sum = 0, dot = 0;
        for (int64_t k = 0; k < count; k++) {
            const double t = (double)gy[k] * (w ? w[i % d.groups * d.width + k / d.points] : 1);
            sum += t;
            dot += t * ((x[k] - kept[0]) * kept[1]);
        }
        for (int64_t k = 0; k < count; k++) {
            const double t = (double)gy[k] * (w ? w[i % d.groups * d.width + k / d.points] : 1);
            const double hat = (x[k] - kept[0]) * kept[1];
            ((float *)c->gin[0])[i * count + k] =
                (float)(kept[1] * (t - sum / (double)count - hat * dot / (double)count));
        }
    }
}
