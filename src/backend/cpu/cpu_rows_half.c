/* Operators that move or add rows of bf16 with channels last (LAYOUT_LAST): flatten, slice, split, concat, repeat,
 * learned points and positions. For processors with bf16; where rows come in, rows go out. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/learned.h"
#include "model/ops/repeat.h"
#include "model/ops/slice.h"

/* Rows in, rows out: of at least two dimensions, because a vector has no order of channels and points. */
static enum layout half_follow(const struct selection *s, const struct node *n)
{
    const bool rows = s->dev.bf16 && s->tensor[n->in[0]].type == BF16 && cpu_rows(s, n->in[0]);
    return rows && s->g->tensor[n->out].shape.n > 1 ? LAYOUT_LAST : LAYOUT_NONE;
}

static enum layout half_concat(const struct selection *s, const struct node *n)
{
    for (int i = 1; i < n->n_in; i++) if (!cpu_rows(s, n->in[i])) return LAYOUT_NONE;
    return half_follow(s, n);
}

/* A flatten moves nothing if rows go out, or if each channel has one point. */
static const char *half_flatten_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct shape *in = &s->g->tensor[k->in[0]].shape;
    const bool lies = cpu_rows(s, k->in[0]) && (cpu_rows(s, k->out) || shape_points(in) == 1);
    return s->dev.bf16 && lies ? NULL : "points that do not lie in the order of channels";
}

/* n values: y = or += x. y may be x if =. */
static void move(uint16_t *y, const uint16_t *x, int64_t n, bool acc)
{
    if (acc) half_add(y, x, (size_t)n);
    else if (y != x) memcpy(y, x, (size_t)n * sizeof *y);
}

static int64_t values(const struct be *b, const struct be_kernel *k, int tensor)
{
    return k->key.samples * shape_count(&b->g->tensor[tensor].shape);
}

static int flatten_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    if (k->key.phase == PH_FWD) move(c->out, c->in[0], values(b, k, k->node->out), false);
    else move(c->gin[0], c->gout, values(b, k, k->node->out), c->gin_acc & 1);
    return 0;
}

/* ---- parts of rows ------------------------------------------------------------------------------ */

/* Part s of `whole`, forth or back. A part without a gradient has zeros. */
static void part_move(const struct slice *s, uint16_t *whole, uint16_t *part, bool to_whole, bool acc)
{
    for (int64_t i = 0; i < s->outer; i++) {
        uint16_t *at = whole + i * s->width + s->first, *of = part ? part + i * s->part : NULL;
        if (!to_whole) move(of, at, s->part, acc);
        else if (of) move(at, of, s->part, acc);
        else if (!acc) memset(at, 0, (size_t)s->part * sizeof *at);
    }
}

static int slice_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct slice s = slice_of(b->g, k->node, k->key.samples, true);
    const bool back = k->key.phase != PH_FWD, acc = c->gin_acc & 1;
    if (back && !acc) memset(c->gin[0], 0, (size_t)values(b, k, k->node->in[0]) * sizeof(uint16_t));
    part_move(&s, back ? c->gin[0] : (void *)c->in[0], back ? (void *)c->gout : c->out, back, acc);
    return 0;
}

static int split_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const bool back = k->key.phase != PH_FWD;
    for (int i = 0; i < k->node->n_out; i++) {
        const struct slice s = split_of(b->g, k->node, i, k->key.samples, true);
        part_move(&s, back ? c->gin[0] : (void *)c->in[0], back ? (void *)c->gouts[i] : c->outs[i], back,
                  back && c->gin_acc & 1);
    }
    return 0;
}

static int concat_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct node *n = k->node;
    const struct shape *out = &b->g->tensor[n->out].shape;
    const bool back = k->key.phase != PH_FWD;
    struct slice s = {.outer = k->key.samples * shape_points(out), .width = out->d[0]};
    for (int i = 0; i < n->n_in; i++, s.first += s.part) {
        s.part = b->g->tensor[n->in[i]].shape.d[0];
        if (back && !c->gin[i]) continue;
        part_move(&s, back ? (void *)c->gout : c->out, back ? c->gin[i] : (void *)c->in[i], !back,
                  back && c->gin_acc >> i & 1);
    }
    return 0;
}

/* Copies are added in ascending order, in float. */
static int repeat_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct repeat r = repeat_of(b->g, k->node);
    const uint16_t *from = k->key.phase == PH_FWD ? c->in[0] : c->gout;
    uint16_t *to = k->key.phase == PH_FWD ? c->out : c->gin[0];
    float *sum = c->work, *one = sum + r.c;
    for (int64_t p = 0; p < k->key.samples * r.points; p++)
        if (k->key.phase == PH_FWD) {
            for (int64_t i = 0; i < r.count; i++, to += r.c) memcpy(to, from, (size_t)r.c * sizeof *to);
            from += r.c;
        } else {
            b->vec->widen(sum, from, (size_t)r.c);
            for (int64_t i = 1; i < r.count; i++) {
                b->vec->widen(one, from + i * r.c, (size_t)r.c);
                b->vec->add(sum, one, (size_t)r.c);
            }
            b->vec->narrow(to, sum, (size_t)r.c, c->gin_acc & 1);
            from += r.count * r.c;
            to += r.c;
        }
    return 0;
}

static size_t repeat_work(const struct selection *s, const struct group *k)
{
    return CPU_WORK + 2 * size_align64((size_t)s->g->tensor[k->in[0]].shape.d[0] * sizeof(float));
}

/* ---- learned points ------------------------------------------------------------------------------ */

/* gradient (+)= the sum over samples of the first d.count rows of each; the samples in their order. */
static void learned_add(struct be *b, const struct learned *d, const uint16_t *g, float *grad, bool acc, float *copy)
{
    for (int64_t p = 0; p < d->count; p++)
        for (int64_t n = 0; n < d->n; n++) {
            float *to = grad + p * d->c;
            b->vec->widen(n || acc ? copy : to, g + (n * d->points + p) * d->c, (size_t)d->c);
            if (n || acc) b->vec->add(to, copy, (size_t)d->c);
        }
}

static int prepend_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct learned d = learned_of(b->g, k->node, k->key.samples);
    const int64_t had = d.points - d.count;
    if (k->key.phase == PH_BWD_WEIGHTS) {
        learned_add(b, &d, c->gout, c->pgrad[0], c->pgrad_acc, c->work);
        return 0;
    }
    for (int64_t n = 0; n < d.n; n++) {
        const int64_t all = n * d.points * d.c, rest = n * had * d.c;
        if (k->key.phase == PH_FWD) {
            b->vec->narrow((uint16_t *)c->out + all, c->param[0], (size_t)(d.count * d.c), false);
            move((uint16_t *)c->out + all + d.count * d.c, (const uint16_t *)c->in[0] + rest, had * d.c, false);
        } else {
            move((uint16_t *)c->gin[0] + rest, (const uint16_t *)c->gout + all + d.count * d.c, had * d.c,
                 c->gin_acc & 1);
        }
    }
    return 0;
}

static int positions_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct learned d = learned_of(b->g, k->node, k->key.samples);
    const int64_t sample = d.points * d.c;
    if (k->key.phase == PH_BWD_WEIGHTS) learned_add(b, &d, c->gout, c->pgrad[0], c->pgrad_acc, c->work);
    else if (k->key.phase == PH_BWD_DATA) move(c->gin[0], c->gout, d.n * sample, c->gin_acc & 1);
    else
        for (int64_t n = 0; n < d.n; n++) {
            uint16_t *y = (uint16_t *)c->out + n * sample;
            memcpy(y, (const uint16_t *)c->in[0] + n * sample, (size_t)sample * sizeof *y);
            b->vec->narrow(y, c->param[0], (size_t)sample, true);
        }
    return 0;
}

static size_t learned_work(const struct selection *s, const struct group *k)
{
    return CPU_WORK + size_align64((size_t)s->g->tensor[k->out].shape.d[0] * sizeof(float));
}

#define HALF_ROWS(op, follow) .name = "bf16", .pattern = PATTERN_OP(op), .layout = follow, HALF_ROW
const struct kernel_row cpu_rows_rows_half[] = {
    {.name = "bf16", .pattern = PATTERN_OP("flatten"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.5,
     .layout = half_follow, .refuses = half_flatten_refuses, .run = flatten_run},
    {HALF_ROWS("slice", half_follow), .run = slice_run},
    {HALF_ROWS("split", NULL), .run = split_run},
    {HALF_ROWS("concat", half_concat), .run = concat_run},
    {HALF_ROWS("repeat", half_follow), .workspace = repeat_work, .run = repeat_run},
    {HALF_ROWS("prepend", half_follow), .workspace = learned_work, .run = prepend_run},
    {HALF_ROWS("positions", half_follow), .workspace = learned_work, .run = positions_run},
    {0}};
