/* Elementwise operators, pooling, concatenation, flatten on any layout; embedding. */
#include <string.h>
#include "backend/cpu/cpu_int.h"
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

static struct be_kernel *simple_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    const struct shape *s = &b->g->tensor[n->in[0]].shape;
    struct simple_kernel *k = kernel_new(like, sizeof *k);
    const bool half = like->half && cpu_is_half(b, n->in[0]) && b->s->tensor[n->in[0]].layout == LAYOUT_LAST;
    k->lanes = half ? 1 : kernel_lanes(b, like, n->in[0]);
    k->vec = half ? &vec_half : k->lanes > 1 ? b->vec : &vec_plain;
    k->count = (size_t)like->key.samples * (size_t)shape_count(&b->g->tensor[n->out].shape);
    k->s = (struct vec_shape){like->key.samples, s->d[0] / k->lanes, shape_points(s)};
    return &k->base;
}

static struct be_kernel *pointwise_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct be_kernel *k = simple_make(b, like, e);
    k->elements = ((struct simple_kernel *)k)->count;
    return k;
}

/* ---- relu ------------------------------------------------------------------------------------ */

static int relu_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->relu(c->out, c->in[0], base->elements);
    return 0;
}

static int relu_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->relu_backward(c->gin[0], c->out, c->gout, base->elements, c->gin_acc & 1);
    return 0;
}

/* ---- functions of one value ------------------------------------------------------------------ */

static int unary_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct op_kind *op = base->node->op;
    const struct vec_unary *f = &b->vec->unary[op->unary];
    size_t count = base->elements;
    float a = unary_attr(base->node);
    if (base->key.phase == PH_FWD) f->forward(c->out, c->in[0], count, a);
    else f->backward(c->gin[0], op->need_b & NEED_OUT ? c->out : c->in[0], c->gout, count, a, c->gin_acc & 1);
    return 0;
}

/* ---- multiply -------------------------------------------------------------------------------- */

/* Does the second factor have one point a channel? */
static bool scales(const struct graph *g, const struct node *n) { return factors_of(g, n, 1).points > 1; }

/* With one point a channel every layout is the same. */
static const char *multiply_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    enum layout l = s->tensor[k->out].layout;
    if (l == LAYOUT_LAST && scales(s->g, group_node(s, k))) return "one point a channel of tokens as rows";
    bool takes = s->tensor[k->in[0]].layout == l && (scales(s->g, group_node(s, k)) || s->tensor[k->in[1]].layout == l);
    return takes ? NULL : "different layouts";
}

static int multiply_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    if (scales(b->g, base->node)) k->vec->scale(&k->s, c->in[0], c->in[1], c->out, false);
    else b->vec->multiply(c->out, c->in[0], c->in[1], k->count, false);
    return 0;
}

static int multiply_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    const float *g = c->gout;
    bool adds = c->gin_acc & 1, adds_f = c->gin_acc >> 1 & 1, each = scales(b->g, base->node);
    if (c->gin[0] && each) k->vec->scale(&k->s, g, c->in[1], c->gin[0], adds);
    if (c->gin[0] && !each) b->vec->multiply(c->gin[0], g, c->in[1], k->count, adds);
    if (c->gin[1] && each) k->vec->dot(&k->s, c->in[0], g, c->gin[1], adds_f);
    if (c->gin[1] && !each) b->vec->multiply(c->gin[1], g, c->in[0], k->count, adds_f);
    return 0;
}

/* The factors of channels are widened, and their gradients narrowed, on their own. */
static int multiply_half_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    const size_t n = (size_t)(k->s.n * k->s.blocks);
    const bool forward = base->key.phase == PH_FWD;
    float *f = c->work;
    if (forward || c->gin[0]) {
        b->vec->widen(f, c->in[1], n);
        k->vec->scale(&k->s, forward ? c->in[0] : c->gout, f, forward ? c->out : c->gin[0],
                      !forward && c->gin_acc & 1);
    }
    if (forward || !c->gin[1]) return 0;
    k->vec->dot(&k->s, c->in[0], c->gout, f, false);
    b->vec->narrow(c->gin[1], f, n, c->gin_acc >> 1 & 1);
    return 0;
}

static const char *multiply_half_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && scales(s->g, group_node(s, k)) ? NULL : "";
}

static size_t factors_work(const struct selection *s, const struct group *k)
{
    return CPU_WORK + (size_t)s->max_samples * (size_t)s->g->tensor[k->in[0]].shape.d[0] * sizeof(float);
}

/* ---- a function of one value times another tensor ------------------------------------------------------------ */

static int gate_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct vec_unary *f = &b->vec->unary[base->node->op->unary];
    const size_t n = base->elements;
    const struct vec_gate g = {c->gin[0], c->gin[1], c->gin_acc};
    const float a = unary_attr(base->node);
    if (base->key.phase == PH_FWD) f->gate(c->out, c->in[0], c->in[1], n, a);
    else f->gate_backward(&g, c->in[0], c->in[1], c->gout, n, a);
    return 0;
}

/* Tensors of different layouts are copied. */
static struct be_kernel *gate_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct group *k = like->k;
    bool mixed = false;
    for (int i = 0; i < k->n_in; i++) mixed |= tensor_lanes(b, k->in[i]) != tensor_lanes(b, k->out);
    return mixed && !like->lanes ? cpu_convert_make(b, like, 1, gate_make, e) : pointwise_make(b, like, e);
}

/* ---- scale ----------------------------------------------------------------------------------- */

/* One weight a channel: sample by sample. */
static int scale_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct simple_kernel *k = (struct simple_kernel *)base;
    const size_t each = k->count / (size_t)base->key.samples * (k->vec == &vec_half ? sizeof(uint16_t) : sizeof(float));
    struct vec_shape one = k->s;
    one.n = 1;
    for (int n = 0; n < base->key.samples; n++) {
        size_t at = (size_t)n * each;
        const void *x = (const char *)c->in[0] + at, *g = (const char *)c->gout + at;
        if (base->key.phase == PH_FWD) k->vec->scale(&one, x, c->param[0], (void *)((char *)c->out + at), false);
        else if (base->key.phase == PH_BWD_WEIGHTS) k->vec->dot(&one, x, g, c->pgrad[0], c->pgrad_acc || n > 0);
        else k->vec->scale(&one, g, c->param[0], (void *)((char *)c->gin[0] + at), c->gin_acc & 1);
    }
    return 0;
}

/* ---- add ------------------------------------------------------------------------------------- */

static int add_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->sum(c->out, c->in[0], c->in[1], base->elements);
    return 0;
}

static int add_backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    size_t count = base->elements;
    for (int i = 0; i < base->node->n_in; i++) {
        if (!c->gin[i]) continue;
        if (c->gin_acc >> i & 1) b->vec->add(c->gin[i], c->gout, count);
        else if (c->gin[i] != c->gout) memcpy(c->gin[i], c->gout, count * sizeof(float));
    }
    return 0;
}

static const char *add_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return k->n_in == 2 ? NULL : "more than two inputs";
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
        s.lanes = kernel_lanes(b, base, n->in[i]);
        const bool as_it_lies = s.lanes == kernel_lanes(b, base, n->out), acc = c->gin_acc >> i & 1;
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

struct max_call { const struct simple_kernel *k; const struct be_call *c; size_t in, out, element; };

/* Some planes, of which each has `in` inputs and `out` outputs. */
static void max_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct max_call *m = data;
    const struct be_call *c = m->c;
    struct vec_pool p = m->k->pool;
    const size_t in = (size_t)from * m->in * m->element, out = (size_t)from * m->out * m->element;
    uint8_t *index = c->saved ? (uint8_t *)c->saved + (size_t)from * m->out : NULL;
    p.planes = to - from;
    if (m->k->base.key.phase == PH_FWD)
        m->k->vec->max_pool(&p, (const void *)((const char *)c->in[0] + in), (void *)((char *)c->out + out), index);
    else
        m->k->vec->max_pool_backward(&p, index, (const void *)((const char *)c->gout + out),
                                     (void *)((char *)c->gin[0] + in), c->gin_acc & 1);
}

static int max_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct simple_kernel *k = (const struct simple_kernel *)base;
    const bool half = k->vec == &vec_half;
    const int64_t *in = k->pool.in, *out = k->pool.out, each = half ? k->pool.channels : k->vec->lanes;
    const struct max_call m = {k, c, (size_t)(in[0] * in[1] * in[2] * each), (size_t)(out[0] * out[1] * out[2] * each),
                               half ? sizeof(uint16_t) : sizeof(float)};
    cpu_each(b->s->dev.threads, k->pool.planes, max_part, &m);
    return 0;
}

/* Windows whose elements fit one byte. */
static const char *max_pool_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    struct window w;
    struct err e = {0};
    bool takes = !window_make(group_node(s, k), &s->g->tensor[k->in[0]].shape, &w, &e) && window_k_size(&w) <= 255;
    return takes ? NULL : "over 255 elements a window";
}

static const char *half_max_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 ? max_pool_refuses(s, k, ph) : "";
}

static struct be_kernel *max_pool_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct window w;
    if (window_make(like->node, &b->g->tensor[like->node->in[0]].shape, &w, e)) return NULL;
    struct simple_kernel *k = (struct simple_kernel *)simple_make(b, like, e);
    k->pool.planes = k->vec == &vec_half ? k->s.n : k->s.n * k->s.blocks;
    k->pool.channels = k->s.blocks;
    for (int i = 0; i < 3; i++) {
        k->pool.in[i] = w.in[i];
        k->pool.out[i] = w.out[i];
        k->pool.kernel[i] = w.k[i];
        k->pool.stride[i] = w.s[i];
        k->pool.padding[i] = w.p[i];
    }
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

static const char *flatten_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->tensor[k->out].layout == LAYOUT_PLAIN ? NULL : "output in blocks of channels";
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

const struct kernel_row cpu_rows_simple[] = {
    {.name = "relu", .pattern = PATTERN_OP("relu"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_PHASE(PH_FWD),
     .same_layout = true, .pointwise = true, .make = pointwise_make, .run = relu_forward_run},
    {.name = "relu", .pattern = PATTERN_OP("relu"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_BACKWARD,
     .same_layout = true, .pointwise = true, .make = pointwise_make, .run = relu_backward_run},
    {.name = "unary", .pattern = PATTERN_CATEGORY(OP_UNARY), .layouts = ROW_ANY_LAYOUT, .same_layout = true,
     .pointwise = true, .make = pointwise_make, .run = unary_run},
    {.name = "multiply", .pattern = PATTERN_OP("multiply"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_PHASE(PH_FWD),
     .refuses = multiply_refuses, .make = simple_make, .run = multiply_forward_run},
    {.name = "multiply", .pattern = PATTERN_OP("multiply"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_BACKWARD,
     .refuses = multiply_refuses, .make = simple_make, .run = multiply_backward_run},
    {.name = "gate", .pattern = &pattern_gate, .layouts = ROW_ANY_LAYOUT, .same_layout = true, .pointwise = true,
     .make = pointwise_make, .run = gate_run},
    {.name = "gate", .pattern = &pattern_gate, .layouts = ROW_ANY_LAYOUT, .make = gate_make, .run = gate_run},
    {.name = "bf16", .pattern = PATTERN_OP("multiply"), .types = TAKES(BF16), .layouts = ROW_LAYOUT(LAYOUT_LAST),
     .cost = 0.5, .refuses = multiply_half_refuses, .workspace = factors_work, .make = simple_make,
     .run = multiply_half_run},
    {.name = "bf16", .pattern = PATTERN_OP("scale"), HALF_ROW, .make = simple_make, .run = scale_run},
    {.name = "scale", .pattern = PATTERN_OP("scale"), .make = simple_make, .run = scale_run},
    {.name = "add", .pattern = PATTERN_OP("add"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_PHASE(PH_FWD),
     .same_layout = true, .pointwise = true, .refuses = add_refuses, .make = pointwise_make, .run = add_forward_run},
    {.name = "add", .pattern = PATTERN_OP("add"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_BACKWARD, .grad_over = 1,
     .same_layout = true, .pointwise = true, .refuses = add_refuses, .make = pointwise_make, .run = add_backward_run},
    {.name = "concat", .pattern = PATTERN_OP("concat"), .make = simple_make, .run = concat_run},
    {.name = "bf16", .pattern = PATTERN_OP("global_avg_pool"), HALF_ROW, .phases = ROW_PHASE(PH_FWD),
     .make = simple_make, .run = mean_forward_run},
    {.name = "bf16", .pattern = PATTERN_OP("global_avg_pool"), HALF_ROW, .phases = ROW_BACKWARD, .make = simple_make,
     .run = mean_backward_run},
    /* the output has one point a channel, so its layout is both plain and blocked */
    {.name = "mean", .pattern = PATTERN_OP("global_avg_pool"), .phases = ROW_PHASE(PH_FWD), .make = simple_make,
     .run = mean_forward_run},
    {.name = "mean", .pattern = PATTERN_OP("global_avg_pool"), .phases = ROW_BACKWARD, .make = simple_make,
     .run = mean_backward_run},
    {.name = "bf16", .pattern = PATTERN_OP("max_pool"), .types = TAKES(BF16), .layouts = ROW_LAYOUT(LAYOUT_LAST),
     .cost = 0.5, .refuses = half_max_refuses, .make = max_pool_make, .run = max_run},
    {.name = "max pool", .pattern = PATTERN_OP("max_pool"), .same_layout = true, .refuses = max_pool_refuses,
     .make = max_pool_make, .run = max_run},
    {.name = "flatten", .pattern = PATTERN_OP("flatten"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_PHASE(PH_FWD),
     .refuses = flatten_refuses, .run = flatten_forward_run},
    {.name = "flatten", .pattern = PATTERN_OP("flatten"), .layouts = ROW_ANY_LAYOUT, .phases = ROW_BACKWARD,
     .refuses = flatten_refuses, .run = flatten_backward_run},
    {.name = "embedding", .pattern = PATTERN_OP("embedding"), .run = embedding_run},
    {0}};
