/* Elementwise operators, pooling, concatenation, flatten on any layout; embedding. */
#include <stdio.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/dropout.h"
#include "model/ops/embedding.h"
#include "model/ops/multiply.h"
#include "model/ops/window.h"

struct simple_kernel {
    struct be_kernel base;
    const struct vec_ops *vec;
    size_t count;                                        /* elements of the output of all samples */
    struct vec_shape s;                                  /* of input 0 */
    int lanes;
    struct vec_pool pool;
};

static struct simple_kernel *simple_new(struct be *b, const struct be_kernel *like)
{
    const struct node *n = like->node;
    const struct shape *s = &b->g->tensor[n->in[0]].shape;
    struct simple_kernel *k = kernel_new(like, sizeof *k);
    k->lanes = tensor_lanes(b, n->in[0]);
    k->vec = k->lanes > 1 ? b->vec : &vec_plain;
    k->count = (size_t)like->key.samples * (size_t)shape_count(&b->g->tensor[n->out].shape);
    k->s = (struct vec_shape){like->key.samples, s->d[0] / k->lanes, shape_points(s)};
    return k;
}

/* ---- relu ------------------------------------------------------------------------------------ */

static int relu_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->relu(c->out, c->in[0], ((struct simple_kernel *)base)->count);
    return 0;
}

static int relu_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->relu_backward(c->gin[0], c->out, c->gout, ((struct simple_kernel *)base)->count, c->gin_acc & 1);
    return 0;
}

static bool same_layout(const struct be *b, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (tensor_lanes(b, n->in[i]) != tensor_lanes(b, n->out)) return false;
    return true;
}

bool cpu_relu_takes(const struct be *b, const struct be_kernel *like) { return same_layout(b, like->node); }

struct be_kernel *cpu_relu_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = like->key.phase == PH_FWD ? relu_forward_run : relu_backward_run;
    return &k->base;
}

/* ---- functions of one value ------------------------------------------------------------------ */

static int unary_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct op_kind *op = base->node->op;
    const struct vec_unary *f = &b->vec->unary[op->unary];
    size_t count = ((struct simple_kernel *)base)->count;
    float a = unary_attr(base->node);
    if (base->key.phase == PH_FWD) f->forward(c->out, c->in[0], count, a);
    else f->backward(c->gin[0], op->need_b & NEED_OUT ? c->out : c->in[0], c->gout, count, a, c->gin_acc & 1);
    return 0;
}

struct be_kernel *cpu_unary_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = unary_run;
    return &k->base;
}

/* ---- multiply -------------------------------------------------------------------------------- */

/* Does the second factor have one point a channel? */
static bool scales(const struct be *b, const struct node *n) { return factors_of(b->g, n, 1).points > 1; }

/* With one point a channel every layout is the same. */
bool cpu_multiply_takes(const struct be *b, const struct be_kernel *like)
{
    const struct node *n = like->node;
    int lanes = tensor_lanes(b, n->out);
    return tensor_lanes(b, n->in[0]) == lanes && (scales(b, n) || tensor_lanes(b, n->in[1]) == lanes);
}

static int multiply_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    if (scales(b, base->node)) k->vec->scale(&k->s, c->in[0], c->in[1], c->out, false);
    else b->vec->multiply(c->out, c->in[0], c->in[1], k->count, false);
    return 0;
}

static int multiply_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    const float *g = c->gout;
    bool adds = c->gin_acc & 1, adds_f = c->gin_acc >> 1 & 1, each = scales(b, base->node);
    if (c->gin[0] && each) k->vec->scale(&k->s, g, c->in[1], c->gin[0], adds);
    if (c->gin[0] && !each) b->vec->multiply(c->gin[0], g, c->in[1], k->count, adds);
    if (c->gin[1] && each) k->vec->dot(&k->s, c->in[0], g, c->gin[1], adds_f);
    if (c->gin[1] && !each) b->vec->multiply(c->gin[1], g, c->in[0], k->count, adds_f);
    return 0;
}

struct be_kernel *cpu_multiply_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = like->key.phase == PH_FWD ? multiply_forward_run : multiply_backward_run;
    return &k->base;
}

/* ---- scale ----------------------------------------------------------------------------------- */

/* One weight a channel: sample by sample, so that samples of a bundle are added in the same order. */
static int scale_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    size_t each = k->count / (size_t)base->key.samples;
    struct vec_shape one = k->s;
    one.n = 1;
    for (int n = 0; n < base->key.samples; n++) {
        size_t at = (size_t)n * each;
        const float *x = (const float *)c->in[0] + at, *g = (const float *)c->gout + at;
        if (base->key.phase == PH_FWD) k->vec->scale(&one, x, c->param[0], (float *)c->out + at, false);
        else if (base->key.phase == PH_BWD_WEIGHTS) k->vec->dot(&one, x, g, c->pgrad[0], c->pgrad_acc || n > 0);
        else k->vec->scale(&one, g, c->param[0], (float *)c->gin[0] + at, c->gin_acc & 1);
    }
    return 0;
}

struct be_kernel *cpu_scale_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = scale_run;
    return &k->base;
}

/* ---- stochastic depth ------------------------------------------------------------------------ */

static int depth_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    bool back = base->key.phase != PH_FWD, acc = back && c->gin_acc & 1;
    const float *x = back ? c->gout : c->in[0];
    float *y = back ? c->gin[0] : c->out;
    size_t count = ((struct simple_kernel *)base)->count / (size_t)base->key.samples;
    const struct dropout d = dropout_of(b->g, base->node, c->block);
    for (int n = 0; n < base->key.samples; n++, x += count, y += count) {
        float keep = base->key.train ? depth_factor(&d, c->sample[n]) : 1;
        if (keep == 0 && !acc) memset(y, 0, count * sizeof *y);
        else if (keep != 0) for (size_t i = 0; i < count; i++) y[i] = (acc ? y[i] : 0) + x[i] * keep;
    }
    return 0;
}

struct be_kernel *cpu_depth_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = depth_run;
    return &k->base;
}

/* ---- add ------------------------------------------------------------------------------------- */

static int add_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->sum(c->out, c->in[0], c->in[1], ((struct simple_kernel *)base)->count);
    return 0;
}

static int add_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    size_t count = ((struct simple_kernel *)base)->count;
    for (int i = 0; i < base->node->n_in; i++) {
        if (!c->gin[i]) continue;
        if (c->gin_acc >> i & 1) b->vec->add(c->gin[i], c->gout, count);
        else if (c->gin[i] != c->gout) memcpy(c->gin[i], c->gout, count * sizeof(float));
    }
    return 0;
}

bool cpu_add_takes(const struct be *b, const struct be_kernel *like)
{
    return same_layout(b, like->node) && like->node->n_in == 2;
}

struct be_kernel *cpu_add_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = like->key.phase == PH_FWD ? add_forward_run : add_backward_run;
    return &k->base;
}

/* ---- concat ---------------------------------------------------------------------------------- */

/* Channels of a sample follow each other, one by one or in blocks. If the parts have different layouts, the whole is
 * plain, and so is a part's place in it. One sample of the part is then converted there. */
static void part_copy(float *dst, const float *src, struct blocks s, bool acc)
{
    s.lanes = 1;                                         /* without conversion */
    to_plain(dst, src, s, acc);
}

static int concat_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct node *n = base->node;
    const bool forward = base->key.phase == PH_FWD;
    size_t whole = ((struct simple_kernel *)base)->count / (size_t)base->key.samples, at = 0;
    for (int i = 0; i < n->n_in; i++) {
        struct blocks s = tensor_blocks(b, n->in[i], 1);
        const bool as_it_lies = s.lanes == tensor_lanes(b, n->out), acc = c->gin_acc >> i & 1;
        size_t part = (size_t)(s.channels * s.points);
        for (int k = 0; k < base->key.samples && (forward || c->gin[i]); k++) {
            size_t to = (size_t)k * whole + at, from = (size_t)k * part;
            if (forward)
                (as_it_lies ? part_copy : to_plain)((float *)c->out + to, (const float *)c->in[i] + from, s, false);
            else
                (as_it_lies ? part_copy : to_blocked)((float *)c->gin[i] + from, (const float *)c->gout + to, s, acc);
        }
        at += part;
    }
    return 0;
}

struct be_kernel *cpu_concat_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = concat_run;
    return &k->base;
}

/* ---- pooling --------------------------------------------------------------------------------- */

static int mean_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    k->vec->mean(&k->s, c->in[0], c->out);
    return 0;
}

static int mean_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    k->vec->mean_backward(&k->s, c->gout, c->gin[0], c->gin_acc & 1);
    return 0;
}

/* The output has one point a channel, so its layout is both plain and blocked. */
struct be_kernel *cpu_global_pool_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct simple_kernel *k = simple_new(b, like);
    k->base.run = like->key.phase == PH_FWD ? mean_forward_run : mean_backward_run;
    return &k->base;
}

static int max_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    k->vec->max_pool(&k->pool, c->in[0], c->out, c->saved);
    return 0;
}

static int max_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    k->vec->max_pool_backward(&k->pool, c->saved, c->gout, c->gin[0], c->gin_acc & 1);
    return 0;
}

/* Windows whose elements fit one byte. */
bool cpu_max_pool_takes(const struct be *b, const struct be_kernel *like)
{
    struct window w;
    struct err e = {0};
    return !window_make(like->node, &b->g->tensor[like->node->in[0]].shape, &w, &e) && window_k_size(&w) <= 255 &&
           same_layout(b, like->node);
}

struct be_kernel *cpu_max_pool_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct window w;
    if (window_make(like->node, &b->g->tensor[like->node->in[0]].shape, &w, e)) return NULL;
    struct simple_kernel *k = simple_new(b, like);
    k->pool.planes = k->s.n * k->s.blocks;
    for (int i = 0; i < 3; i++) {
        k->pool.in[i] = w.in[i];
        k->pool.out[i] = w.out[i];
        k->pool.kernel[i] = w.k[i];
        k->pool.stride[i] = w.s[i];
        k->pool.padding[i] = w.p[i];
    }
    k->base.run = like->key.phase == PH_FWD ? max_forward_run : max_backward_run;
    return &k->base;
}

/* ---- flatten --------------------------------------------------------------------------------- */

static int flatten_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    if (c->out != c->in[0]) to_plain(c->out, c->in[0], tensor_blocks(b, base->node->in[0], base->key.samples), false);
    return 0;
}

static int flatten_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct blocks s = tensor_blocks(b, base->node->in[0], base->key.samples);
    if (c->gin[0] != c->gout) to_blocked(c->gin[0], c->gout, s, c->gin_acc & 1);
    return 0;
}

bool cpu_flatten_takes(const struct be *b, const struct be_kernel *like)
{
    return tensor_lanes(b, like->node->out) == 1;
}

struct be_kernel *cpu_flatten_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct be_kernel *k = kernel_new(like, sizeof *k);
    k->run = like->key.phase == PH_FWD ? flatten_forward_run : flatten_backward_run;
    return k;
}

/* ---- the operators' own loops ---------------------------------------------------------------- */

/* The operator's own loops, which are vector code or copies of rows. Blocked tensors are copied to plain ones. */
struct be_kernel *cpu_own_loops_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct be_kernel *k = cpu_reference_make(b, like, e);
    if (k) snprintf(k->name, sizeof k->name, "own");
    return k;
}

/* ---- embedding ------------------------------------------------------------------------------- */

static int embedding_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct embedding m = embedding_of(b->g, base->node, base->key.samples, c->in[0]);
    if (base->key.phase == PH_FWD) {
        embedding_take(&m, c->param[0], c->out);
        return 0;
    }
    if (!c->pgrad_acc) memset(c->pgrad[0], 0, (size_t)(m.rows * m.features) * sizeof(float));
    embedding_add(&m, c->gout, c->pgrad[0]);             /* few rows of a large table are touched */
    return 0;
}

struct be_kernel *cpu_embedding_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct be_kernel *k = kernel_new(like, sizeof *k);
    k->run = embedding_run;
    return k;
}
