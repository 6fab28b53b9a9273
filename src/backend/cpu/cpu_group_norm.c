/* Group and instance norm: the passes of batch norm (cpu_vec.h), over the points of one sample at a time. A group's
 * moments merge those of its channels: the mean of the means; the variances, plus the squared distances of the means
 * (Chan, Golub, LeVeque 1979).
 *
 * With xc = x - mean, r = 1 / sqrt(var + eps), m values a group, t = gamma g: y = gamma r xc + beta; dgamma = r sum(g
 * xc); dbeta = sum(g), over the points of a channel; dx = r (t - sum(t) / m - xc r^2 sum(t xc) / m). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/group_norm.h"

struct group_kernel {
    struct be_kernel base;
    const struct vec_ops *vec;
    struct vec_shape s;                                  /* of a sample */
    struct group_norm d;
    size_t element;                                      /* bytes of a value */
    double *mean, *var, *sum_g, *sum_gx;                 /* of a sample; channels each */
    float *fmean, *scale, *beta, *c0, *c1;
};

static void group_moments(const struct group_kernel *k, int64_t g, double *mean, double *inv)
{
    double sum = 0, var = 0;
    for (int64_t c = g * k->d.width; c < (g + 1) * k->d.width; c++) sum += k->mean[c];
    *mean = sum / (double)k->d.width;
    for (int64_t c = g * k->d.width; c < (g + 1) * k->d.width; c++)
        var += k->var[c] + (k->mean[c] - *mean) * (k->mean[c] - *mean);
    *inv = 1 / sqrt(var / (double)k->d.width + k->d.eps);
}

/* The coefficients of a group's channels, forward and backward. */
static void scale_find(struct group_kernel *k, const struct be_call *c, int64_t g, const double kept[2])
{
    const float *gamma = k->d.affine ? c->param[GN_WEIGHT] : NULL;
    for (int64_t i = g * k->d.width; i < (g + 1) * k->d.width; i++) {
        k->fmean[i] = (float)kept[0];
        k->scale[i] = (float)((gamma ? gamma[i] : 1) * kept[1]);
    }
}

/* The n-th sample of a tensor. */
static void *sample(const struct group_kernel *k, const void *p, int n)
{
    return (char *)(uintptr_t)p + (size_t)n * (size_t)(k->d.c * k->d.points) * k->element;
}

/* The statistics, or without `stats` the sums of gradients, of all channels of a sample. */
static void channels_sum(const struct group_kernel *k, struct vec_norm a, bool stats)
{
    for (a.from = 0; a.from < k->s.blocks; a.from = a.to) {
        a.to = a.from + VEC_HALF_BLOCKS < k->s.blocks ? a.from + VEC_HALF_BLOCKS : k->s.blocks;
        if (stats) k->vec->norm_stats(&a, k->mean, k->var);
        else k->vec->norm_reduce(&a);
    }
}

static int group_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct group_kernel *k = (struct group_kernel *)base;
    struct vec_norm a = {.s = k->s, .to = k->s.blocks, .mean = k->fmean, .scale = k->scale,
                         .beta = k->d.affine ? c->param[GN_BIAS] : k->beta};
    double *kept = c->saved;
    for (int n = 0; n < base->key.samples; n++) {
        a.x = sample(k, c->in[0], n);
        a.y = sample(k, c->out, n);
        channels_sum(k, a, true);
        for (int64_t g = 0; g < k->d.groups; g++) {
            double of[2];
            group_moments(k, g, &of[0], &of[1]);
            scale_find(k, c, g, of);
            if (kept) memcpy(kept + 2 * (n * k->d.groups + g), of, sizeof of);
        }
        k->vec->norm_forward(&a);
    }
    return 0;
}

static void sums_use(struct group_kernel *k, const struct be_call *c, int64_t g, double inv)
{
    const float *gamma = k->d.affine ? c->param[GN_WEIGHT] : NULL;
    const double count = (double)(k->d.width * k->d.points);
    double sum = 0, dot = 0;
    for (int64_t i = g * k->d.width; i < (g + 1) * k->d.width; i++) {
        sum += (gamma ? gamma[i] : 1) * k->sum_g[i];
        dot += (gamma ? gamma[i] : 1) * k->sum_gx[i];
    }
    for (int64_t i = g * k->d.width; i < (g + 1) * k->d.width; i++) {
        k->c0[i] = (float)(inv * sum / count);
        k->c1[i] = (float)(inv * inv * inv * dot / count);
    }
}

/* Of one sample; samples are added in their order. */
static void weights_store(const struct group_kernel *k, const struct be_call *c, const double *kept, bool acc)
{
    float *dgamma = k->d.affine ? c->pgrad[GN_WEIGHT] : NULL, *dbeta = k->d.affine ? c->pgrad[GN_BIAS] : NULL;
    for (int64_t i = 0; i < k->d.c; i++) {
        if (dgamma) dgamma[i] = (acc ? dgamma[i] : 0) + (float)(kept[2 * (i / k->d.width) + 1] * k->sum_gx[i]);
        if (dbeta) dbeta[i] = (acc ? dbeta[i] : 0) + (float)k->sum_g[i];
    }
}

static int group_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct group_kernel *k = (struct group_kernel *)base;
    struct vec_norm a = {.s = k->s, .to = k->s.blocks, .mean = k->fmean, .scale = k->scale, .beta = k->beta,
                         .mask = MASK_NONE, .sum_g = k->sum_g, .sum_gx = k->sum_gx, .c0 = k->c0, .c1 = k->c1,
                         .gx_acc = c->gin_acc & 1};
    for (int n = 0; n < base->key.samples; n++) {
        const double *kept = (const double *)c->saved + 2 * n * k->d.groups;
        a.x = sample(k, c->in[0], n);
        a.out = a.gout = sample(k, c->gout, n);          /* out: not read under MASK_NONE, but its pointer advances */
        for (int64_t g = 0; g < k->d.groups; g++) scale_find(k, c, g, kept + 2 * g);
        channels_sum(k, a, false);
        weights_store(k, c, kept, c->pgrad_acc || n > 0);
        if (!c->gin[0]) continue;
        for (int64_t g = 0; g < k->d.groups; g++) sums_use(k, c, g, kept[2 * g + 1]);
        a.gx = sample(k, c->gin[0], n);
        k->vec->norm_backward(&a);
        a.gx = NULL;
    }
    return 0;
}

static void group_close(struct be_kernel *base)
{
    free(((struct group_kernel *)base)->mean);
    free(((struct group_kernel *)base)->fmean);
}

static struct be_kernel *group_norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct group_kernel *k = kernel_new(like, sizeof *k);
    const bool half = like->half && cpu_is_half(b, like->node->in[0]);
    const int lanes = half ? 1 : kernel_lanes(b, like, like->node->in[0]);
    k->vec = half ? &vec_half : lanes > 1 ? b->vec : &vec_plain;
    k->element = half ? sizeof(uint16_t) : sizeof(float);
    k->d = group_norm_of(b->g, like->node);
    k->s = (struct vec_shape){1, k->d.c / lanes, k->d.points};
    const size_t c = (size_t)k->d.c;
    k->mean = mem_alloc(4 * c * sizeof *k->mean);
    k->var = k->mean + c;
    k->sum_g = k->var + c;
    k->sum_gx = k->sum_g + c;
    k->fmean = mem_alloc(5 * c * sizeof *k->fmean);
    k->scale = k->fmean + c;
    k->beta = k->scale + c;                              /* zeros */
    k->c0 = k->beta + c;
    k->c1 = k->c0 + c;
    k->base.close = group_close;
    k->base.run = like->key.phase == PH_FWD ? group_forward_run : group_backward_run;
    return &k->base;
}

const struct kernel_row cpu_rows_group_norm[] = {
    {.name = "bf16", .pattern = PATTERN_OP("group_norm"), HALF_ROW, .make = group_norm_make},
    {.name = "bf16", .pattern = PATTERN_OP("instance_norm"), HALF_ROW, .make = group_norm_make},
    {.name = "group norm", .pattern = PATTERN_OP("group_norm"), .same_layout = true, .make = group_norm_make},
    {.name = "group norm", .pattern = PATTERN_OP("instance_norm"), .same_layout = true, .make = group_norm_make},
    {0}};
