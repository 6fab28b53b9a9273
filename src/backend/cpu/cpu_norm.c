/* Batch norm, alone or fused with [add and] ReLU: statistics and one pass forward, two passes backward (cpu_vec.h). It
 * works block by block of channels, so the second pass reads from the cache.
 *
 * With xc = x - mean, r = 1 / sqrt(var + eps), N values a channel (Ioffe and Szegedy 2015, section 3):
 * y = gamma r xc + beta; dgamma = r sum(g xc); dbeta = sum(g); dx = gamma r (g - sum(g) / N - xc r^2 sum(g xc) / N).
 * With running statistics (train = false) mean and var are constants, so dx = gamma r g. */
#include <math.h>
#include <stdlib.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/batch_norm.h"

struct norm_kernel {
    struct be_kernel base;
    const struct vec_ops *vec;
    struct vec_shape s;
    int64_t channels;
    double eps;
    int other;                                           /* index of the other summand among the inputs, -1: none */
    bool relu;
    double *mean, *var, *inv_std, *sum_g, *sum_gx;                 /* of one call; channels each */
    float *fmean, *scale, *c0, *c1;
};

/* Blocks of channels are processed one by one, plain channels several at a time. Channels of rows in bf16 are spread
 * over the threads. */
static int64_t blocks_together(const struct norm_kernel *k, int threads)
{
    enum { LEAST = 32 };                                 /* a line of memory */
    const int64_t each = (k->s.blocks + threads - 1) / threads, some = (each + LEAST - 1) / LEAST * LEAST;
    if (k->vec != &vec_half) return k->vec->lanes > 1 ? 1 : VEC_PLAIN_BLOCKS;
    return some < VEC_HALF_BLOCKS ? some : VEC_HALF_BLOCKS;
}

/* A call, and how many blocks it takes at a time. */
struct norm_call { struct norm_kernel *k; const struct be_call *c; int64_t together; };

static void norm_spread(struct be *b, struct norm_kernel *k, const struct be_call *c, cpu_part *run)
{
    const struct norm_call n = {k, c, blocks_together(k, b->s->dev.threads)};
    cpu_each(b->s->dev.threads, (k->s.blocks + n.together - 1) / n.together, run, &n);
}

static void blocks_set(const struct norm_call *n, int64_t i, struct vec_norm *a)
{
    a->from = i * n->together;
    a->to = a->from + n->together < n->k->s.blocks ? a->from + n->together : n->k->s.blocks;
}

/* Channels of the blocks [a->from, a->to). */
static int64_t first_of(const struct norm_kernel *k, const struct vec_norm *a) { return a->from * k->vec->lanes; }
static int64_t last_of(const struct norm_kernel *k, const struct vec_norm *a) { return a->to * k->vec->lanes; }

static struct bn_saved saved_of(const struct norm_kernel *k, const struct be_call *c)
{
    return k->base.key.train ? bn_saved_at(c->saved, k->channels) : (struct bn_saved){0};
}

/* Mean and 1 / sqrt(var + eps) of the blocks. In train mode they are those of x, saved for backward and optimizer;
 * otherwise the running ones. */
static void moments_find(struct norm_kernel *k, const struct be_call *c, const struct vec_norm *a)
{
    struct bn_saved x = saved_of(k, c);
    const float *mean = c->param[BN_MEAN], *var = c->param[BN_VAR];
    if (k->base.key.train) k->vec->norm_stats(a, k->mean, k->var);
    for (int64_t i = first_of(k, a); i < last_of(k, a); i++) {
        if (!k->base.key.train) {
            k->mean[i] = mean[i];
            k->var[i] = var[i];
        }
        k->inv_std[i] = 1 / sqrt(k->var[i] + k->eps);
        if (!k->base.key.train) continue;
        x.mean[i] = k->mean[i];
        x.var[i] = k->var[i];
    }
}

static void moments_read(struct norm_kernel *k, const struct be_call *c, const struct vec_norm *a)
{
    struct bn_saved x = saved_of(k, c);
    const float *mean = c->param[BN_MEAN], *var = c->param[BN_VAR];
    for (int64_t i = first_of(k, a); i < last_of(k, a); i++) {
        k->mean[i] = k->base.key.train ? x.mean[i] : mean[i];
        k->inv_std[i] = 1 / sqrt((k->base.key.train ? x.var[i] : var[i]) + k->eps);
    }
}

/* The same numbers forward and backward: MASK_AGAIN recomputes the output from them. */
static void scale_find(struct norm_kernel *k, const struct be_call *c, const struct vec_norm *a)
{
    const float *gamma = c->param[BN_WEIGHT];
    for (int64_t i = first_of(k, a); i < last_of(k, a); i++) {
        k->fmean[i] = (float)k->mean[i];
        k->scale[i] = (float)(gamma[i] * k->inv_std[i]);
    }
}

static struct vec_norm norm_args(struct norm_kernel *k, const struct be_call *c)
{
    return (struct vec_norm){
        .s = k->s, .x = c->in[0], .mean = k->fmean, .scale = k->scale, .beta = c->param[BN_BIAS], .relu = k->relu};
}

static void forward_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct norm_call *n = data;
    struct norm_kernel *k = n->k;
    struct vec_norm a = norm_args(k, n->c);
    a.other = k->other < 0 ? NULL : n->c->in[k->other];
    a.y = n->c->out;
    for (int64_t i = from; i < to; i++) {
        blocks_set(n, i, &a);
        moments_find(k, n->c, &a);
        scale_find(k, n->c, &a);
        k->vec->norm_forward(&a);
    }
}

static int norm_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    norm_spread(b, (struct norm_kernel *)base, c, forward_part);
    return 0;
}

/* Parameter gradients of the blocks, and the coefficients of the input gradient. */
static void sums_use(struct norm_kernel *k, const struct be_call *c, const struct vec_norm *a)
{
    float *dgamma = c->pgrad[BN_WEIGHT], *dbeta = c->pgrad[BN_BIAS];
    double count = (double)k->s.n * (double)k->s.points;
    for (int64_t i = first_of(k, a); i < last_of(k, a); i++) {
        double r = k->inv_std[i], mean_g = k->sum_g[i] / count, mean_gx = k->sum_gx[i] / count;
        if (dgamma) dgamma[i] = (c->pgrad_acc ? dgamma[i] : 0) + (float)(r * k->sum_gx[i]);
        if (dbeta) dbeta[i] = (c->pgrad_acc ? dbeta[i] : 0) + (float)k->sum_g[i];
        k->c0[i] = k->base.key.train ? (float)(k->scale[i] * mean_g) : 0;
        k->c1[i] = k->base.key.train ? (float)(k->scale[i] * r * r * mean_gx) : 0;
    }
}

static void backward_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct norm_call *n = data;
    const struct be_call *c = n->c;
    struct norm_kernel *k = n->k;
    struct vec_norm a = norm_args(k, c);
    a.mask = !k->relu ? MASK_NONE : k->other < 0 ? MASK_AGAIN : MASK_OUT;
    /* read only under MASK_OUT, but the pointer advances in any case */
    a.out = a.mask == MASK_OUT ? c->out : c->gout;
    a.gout = c->gout;
    a.gother = k->other < 0 ? NULL : c->gin[k->other];
    a.gother_acc = k->other >= 0 && c->gin_acc >> k->other & 1;
    a.sum_g = k->sum_g;
    a.sum_gx = k->sum_gx;
    a.c0 = k->c0;
    a.c1 = k->c1;
    a.gx = c->gin[0];
    a.gx_acc = c->gin_acc & 1;
    struct vec_norm second = a;
    if (a.gother && !a.gother_acc) {                     /* the first pass leaves the masked gradient there */
        second.gout = a.gother;
        second.mask = MASK_NONE;
    }
    for (int64_t i = from; i < to; i++) {
        blocks_set(n, i, &a);
        blocks_set(n, i, &second);
        moments_read(k, c, &a);
        scale_find(k, c, &a);
        k->vec->norm_reduce(&a);
        sums_use(k, c, &a);
        if (a.gx) k->vec->norm_backward(&second);
    }
}

static int norm_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    norm_spread(b, (struct norm_kernel *)base, c, backward_part);
    return 0;
}

static int nothing_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e) { return 0; }

static void norm_close(struct be_kernel *base)
{
    struct norm_kernel *k = (struct norm_kernel *)base;
    free(k->mean);
    free(k->fmean);
}

/* All tensors get the layout of the first. */
static struct be_kernel *norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    const struct shape *s = &b->g->tensor[n->in[0]].shape;
    bool last = b->s->tensor[n->in[0]].layout == LAYOUT_LAST;
    const bool half = like->half && cpu_is_half(b, n->in[0]);
    int lanes = like->lanes ? like->lanes : last ? 1 : tensor_lanes(b, n->in[0]);
    bool mixed = lanes != tensor_lanes(b, like->k->out) || last;
    for (int i = 1; i < like->k->n_in; i++) mixed |= lanes != tensor_lanes(b, like->k->in[i]);
    if (mixed && !like->lanes && !half) return cpu_convert_make(b, like, lanes, norm_make, e);
    struct norm_kernel *k = kernel_new(like, sizeof *k);
    k->vec = half ? &vec_half : lanes > 1 ? b->vec : &vec_plain;
    k->channels = s->d[0];
    k->s = (struct vec_shape){like->key.samples, s->d[0] / lanes, shape_points(s)};
    k->eps = bn_eps(n);
    k->other = like->k->n_in > 1 ? 1 : -1;
    k->relu = like->k->n_nodes > 1;
    size_t c = (size_t)k->channels;
    k->mean = mem_alloc(5 * c * sizeof *k->mean);
    k->var = k->mean + c;
    k->inv_std = k->var + c;
    k->sum_g = k->inv_std + c;
    k->sum_gx = k->sum_g + c;
    k->fmean = mem_alloc(4 * c * sizeof *k->fmean);
    k->scale = k->fmean + c;
    k->c0 = k->scale + c;
    k->c1 = k->c0 + c;
    k->base.close = norm_close;
    k->base.run = like->key.phase == PH_FWD        ? norm_forward_run
                  : like->key.phase == PH_BWD_DATA ? norm_backward_run
                                                   : nothing_run;
    return &k->base;
}

/* Backward reads each element of the output's gradient before it writes the same element. So one result needs no memory
 * of its own: the masked gradient, or the input's gradient if there is no addition. */
const struct kernel_row cpu_rows_norm[] = {
    {.name = "bf16", .pattern = PATTERN_OP("batch_norm"), HALF_ROW, .grad_over = 1, .make = norm_make},
    {.name = "bf16", .pattern = &pattern_bn_relu, HALF_ROW, .grad_over = 1, .make = norm_make},
    {.name = "bf16", .pattern = &pattern_bn_add_relu, HALF_ROW, .grad_over = 2, .make = norm_make},
    {.name = "batch norm", .pattern = PATTERN_OP("batch_norm"), .layouts = ROW_ANY_LAYOUT, .grad_over = 1,
     .make = norm_make},
    {.name = "batch norm", .pattern = &pattern_bn_relu, .layouts = ROW_ANY_LAYOUT, .grad_over = 1, .make = norm_make},
    {.name = "batch norm", .pattern = &pattern_bn_add_relu, .layouts = ROW_ANY_LAYOUT, .grad_over = 2,
     .make = norm_make},
    {0}};
