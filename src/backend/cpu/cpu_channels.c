/* Operators that work channel by channel, on any layout: learned slopes, dropout of whole channels or samples,
 * repetition. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/dropout.h"
#include "model/ops/prelu.h"
#include "model/ops/repeat.h"

struct channels_kernel {
    struct be_kernel base;
    const struct vec_ops *vec;
    struct vec_shape one;                                /* of a sample */
    size_t each;                                         /* bytes of a sample */
    int64_t c;
    float *factor, *sum;                                 /* of each channel */
};

static void channels_close(struct be_kernel *base) { free(((struct channels_kernel *)base)->factor); }

static struct be_kernel *lanes_make(struct be *b, const struct be_kernel *like, int lanes)
{
    const struct shape *s = &b->g->tensor[like->node->in[0]].shape;
    struct channels_kernel *k = kernel_new(like, sizeof *k);
    const bool half = like->half && cpu_is_half(b, like->node->in[0]);
    if (half) lanes = 1;
    k->vec = half ? &vec_half : lanes > 1 ? b->vec : &vec_plain;
    k->one = (struct vec_shape){1, s->d[0] / lanes, shape_points(s)};
    k->each = (size_t)shape_count(s) * (half ? sizeof(uint16_t) : sizeof(float));
    k->c = s->d[0];
    k->factor = mem_alloc(2 * (size_t)k->c * sizeof *k->factor);
    k->sum = k->factor + k->c;
    k->base.close = channels_close;
    return &k->base;
}

static struct be_kernel *channels_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return lanes_make(b, like, kernel_lanes(b, like, like->node->in[0]));
}

static void *sample(const struct channels_kernel *k, const void *p, int n)
{
    return (char *)(uintptr_t)p + (size_t)n * k->each;
}

/* ---- prelu ----------------------------------------------------------------------------------- */

/* A shared slope gets the sum over all channels. */
static void slope_store(const struct channels_kernel *k, const struct be_call *c, bool shared)
{
    double all = 0;
    float *to = c->pgrad[0];
    if (!shared) return;
    for (int64_t i = 0; i < k->c; i++) all += k->sum[i];
    *to = (c->pgrad_acc ? *to : 0) + (float)all;
}

static int prelu_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct channels_kernel *k = (struct channels_kernel *)base;
    const bool shared = prelu_of(b->g, base->node).shared;
    for (int64_t i = 0; i < k->c && base->key.phase != PH_BWD_WEIGHTS; i++)
        k->factor[i] = ((const float *)c->param[0])[shared ? 0 : i];
    for (int n = 0; n < base->key.samples; n++) {
        const float *x = sample(k, c->in[0], n), *g = sample(k, c->gout, n);
        if (base->key.phase == PH_FWD) k->vec->prelu(&k->one, x, k->factor, sample(k, c->out, n));
        else if (base->key.phase == PH_BWD_DATA)
            k->vec->prelu_backward(&k->one, x, k->factor, g, sample(k, c->gin[0], n), c->gin_acc & 1);
        else if (shared) k->vec->prelu_slopes(&k->one, x, g, k->sum, n > 0);
        else k->vec->prelu_slopes(&k->one, x, g, c->pgrad[0], c->pgrad_acc || n > 0);
    }
    if (base->key.phase == PH_BWD_WEIGHTS) slope_store(k, c, shared);
    return 0;
}

/* ---- dropout of channels, and of samples ----------------------------------------------------- */

static const char *dropout_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return dropout_channels(group_node(s, k)) ? NULL : "draws a number for each element";
}

static const char *half_dropout_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 ? dropout_refuses(s, k, ph) : "";
}

/* Of a sample's channels; all: one for all of them. */
static void factors_fill(struct channels_kernel *k, const struct dropout *d, int64_t sample, bool all)
{
    for (int64_t i = 0; i < k->c; i += 4) {
        float keep[4] = {1, 1, 1, 1};
        if (k->base.key.train) dropout_factors(d, sample, all ? 0 : (uint32_t)(i / 4), keep);
        for (int64_t j = 0; j < 4 && i + j < k->c; j++) k->factor[i + j] = keep[all ? 0 : j];
    }
}

/* What is dropped is zero for any input, also for NaN. */
static int drop(struct be *b, struct channels_kernel *k, const struct be_call *c, bool all)
{
    const bool back = k->base.key.phase != PH_FWD, acc = back && c->gin_acc & 1;
    const struct dropout d = dropout_of(b->g, k->base.node, c->block);
    for (int n = 0; n < k->base.key.samples; n++) {
        factors_fill(k, &d, k->base.key.train ? c->sample[n] : 0, all);
        k->vec->keep(&k->one, sample(k, back ? c->gout : c->in[0], n), k->factor,
                     sample(k, back ? c->gin[0] : c->out, n), acc);
    }
    return 0;
}

static int dropout_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    return drop(b, (struct channels_kernel *)base, c, false);
}

static int depth_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    return drop(b, (struct channels_kernel *)base, c, true);
}

/* One factor a sample, so any layout is as good as plain. */
static struct be_kernel *depth_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return lanes_make(b, like, 1);
}

/* ---- repeat ---------------------------------------------------------------------------------- */

/* The place of channels in a sample: channel c's first point is at lie_of, and its points are `lanes` apart. */
struct channel_place { int64_t points; int lanes; };
static int64_t lie_of(const struct channel_place *l, int64_t c)
{
    return c / l->lanes * l->points * l->lanes + c % l->lanes;
}

struct repeat_kernel { struct be_kernel base; struct repeat r; struct channel_place in, out; };

/* Blocks from blocks, or channels from plain channels, are copied whole. */
static bool whole(const struct repeat_kernel *k) { return k->in.lanes == k->out.lanes; }

static void repeat_forward(const struct repeat_kernel *k, const float *x, float *y)
{
    const int64_t part = k->r.c * k->r.points, lanes = k->out.lanes;
    if (whole(k)) {
        for (int64_t i = 0; i < k->r.count; i++) memcpy(y + i * part, x, (size_t)part * sizeof *y);
        return;
    }
    for (int64_t c = 0; c < k->r.c * k->r.count; c += lanes, y += k->r.points * lanes)
        for (int64_t l = 0; l < lanes; l++) {
            const float *from = x + lie_of(&k->in, (c + l) % k->r.c);
            for (int64_t p = 0; p < k->r.points; p++) y[p * lanes + l] = from[p * k->in.lanes];
        }
}

/* Adds the copies in ascending order. */
static void repeat_backward(const struct repeat_kernel *k, const float *gy, float *gx, bool acc)
{
    const int64_t points = k->r.points, lanes = k->in.lanes;
    for (int64_t c = 0; c < k->r.c; c++) {
        float *to = gx + lie_of(&k->in, c);
        for (int64_t p = 0; p < points; p++) {
            double sum = 0;
            for (int64_t i = 0; i < k->r.count; i++) sum += gy[lie_of(&k->out, c + i * k->r.c) + p * k->out.lanes];
            to[p * lanes] = (acc ? to[p * lanes] : 0) + (float)sum;
        }
    }
}

static int repeat_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct repeat_kernel *k = (const struct repeat_kernel *)base;
    const size_t part = (size_t)(k->r.c * k->r.points), all = part * (size_t)k->r.count;
    for (size_t n = 0; n < (size_t)base->key.samples; n++)
        if (base->key.phase == PH_FWD)
            repeat_forward(k, (const float *)c->in[0] + n * part, (float *)c->out + n * all);
        else repeat_backward(k, (const float *)c->gout + n * all, (float *)c->gin[0] + n * part, c->gin_acc & 1);
    return 0;
}

static struct be_kernel *repeat_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct repeat_kernel *k = kernel_new(like, sizeof *k);
    k->r = repeat_of(b->g, like->node);
    k->in = (struct channel_place){k->r.points, kernel_lanes(b, like, like->node->in[0])};
    k->out = (struct channel_place){k->r.points, kernel_lanes(b, like, like->node->out)};
    return &k->base;
}

/* Its output may have any layout; what follows is usually a convolution. */
static enum layout repeat_layout(const struct selection *s, const struct node *n)
{
    return s->g->tensor[n->out].shape.d[0] % s->dev.block ? LAYOUT_NONE : LAYOUT_BLOCKED;
}

const struct kernel_row cpu_rows_channels[] = {
    {.name = "bf16", .pattern = PATTERN_OP("prelu"), HALF_ROW, .make = channels_make, .run = prelu_run},
    {.name = "bf16", .pattern = PATTERN_OP("dropout"), .types = TAKES(BF16), .layouts = ROW_LAYOUT(LAYOUT_LAST),
     .cost = 0.5, .refuses = half_dropout_refuses, .make = channels_make, .run = dropout_run},
    {.name = "bf16", .pattern = PATTERN_OP("stochastic_depth"), HALF_ROW, .make = depth_make, .run = depth_run},
    {.name = "stochastic depth", .pattern = PATTERN_OP("stochastic_depth"), .layouts = ROW_ANY_LAYOUT,
     .make = depth_make, .run = depth_run},
    {.name = "prelu", .pattern = PATTERN_OP("prelu"), .same_layout = true, .make = channels_make, .run = prelu_run},
    {.name = "dropout", .pattern = PATTERN_OP("dropout"), .same_layout = true, .refuses = dropout_refuses,
     .make = channels_make, .run = dropout_run},
    {.name = "repeat", .pattern = PATTERN_OP("repeat"), .layout = repeat_layout, .make = repeat_make,
     .run = repeat_run},
    {0}};
