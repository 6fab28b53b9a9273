/* Convolutions in bf16 on channels last by oneDNN (cpu_conv_half.h). oneDNN chooses the forms of the packed weights for
 * the largest micro-batch; smaller ones use the same. With stride 1 an input gradient is the forward convolution of the
 * output's gradient with turned weights, for which the library has faster kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_conv_half.h"
#include "model/ops/window.h"

enum { WORK_A_THREAD = 8 << 20 };                        /* bytes of scratchpad that kernels may need */
/* What an argument of the library's convolution is for. */
enum half_way { WAY_FORWARD, WAY_BACK, HALF_WAYS };

/* The library's choices for a group, and how its weights are packed. */
struct half_weights {
    int group;
    bool turned;                                         /* the gradient by a forward convolution */
    dnnl_primitive_desc_t pd[HALF_WAYS];                 /* NULL: not needed */
    struct prim pack[HALF_WAYS];
    size_t bytes[HALF_WAYS];
};

struct conv_half {
    struct be_kernel base;
    struct prim p, add;
    bool adds;                                           /* `add` is there: the library adds to the gradient */
    size_t at;                                           /* of the packed weights */
    struct prim order;                                   /* of weight gradients: from the library's order */
    size_t count, bytes;                                 /* of the gradient; bytes in the library's order */
};

/* ---- shapes ---------------------------------------------------------------------------------- */

bool conv_half(const struct selection *s, const struct node *n)
{
    const bool half = s->dev.precision == BFLOAT16 && s->dev.bf16;
    if (!half || !op_has_windows(n->op) || graph_generates(s->g)) return false;
    const struct shape *w = &s->g->param[n->param[0]].shape;
    return node_attr_is(n, "groups", 1) && (w->d[0] > 1 || w->d[1] == shape_count(w));
}

bool conv_half_last(const struct selection *s, int param) { return s->param[param].layout == LAYOUT_LAST; }

const char *conv_half_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return conv_half(s, group_node(s, k)) ? NULL : "";
}

static void last_form(const struct be *b, int tensor, int n, struct form *f)
{
    static const dnnl_format_tag_t tag[] = {dnnl_acb, dnnl_acdb, dnnl_acdeb};
    form_tensor(b, tensor, 1, n, f);
    f->tag = tag[f->n - 3];
    f->half = true;
}

/* Weights of the given order in memory; 0: as the library likes. */
static struct form weights_form(const struct shape *w, bool turned, dnnl_format_tag_t tag)
{
    struct form f = {.n = w->n, .tag = tag, .half = true};
    for (int i = 0; i < w->n; i++) f.d[i] = w->d[i];
    if (turned) f.d[0] = w->d[1], f.d[1] = w->d[0];
    return f;
}

/* [points][in][out], or [out][in], as a form of the convolution, or of the turned one. */
static struct form stored_form(const struct be *b, int param, bool turned, bool half)
{
    const struct shape *w = &b->g->param[param].shape;
    const bool last = conv_half_last(b->s, param);
    struct form f = weights_form(w, turned, 0);
    f.half = half;
    f.stride[turned ? 1 : 0] = last ? 1 : w->d[1];
    f.stride[turned ? 0 : 1] = last ? w->d[0] : 1;
    int64_t step = w->d[0] * w->d[1];
    for (int i = w->n - 1; i > 1; i--, step *= w->d[i + 1]) f.stride[i] = step;
    return f;
}

/* The node's convolution of n samples; its weights' form is not set. */
static void conv_shape_of(const struct be *b, const struct node *n, int samples, struct conv_shape *d)
{
    const struct shape *in = &b->g->tensor[n->in[0]].shape;
    struct window w;
    struct err none = {0};
    window_make(n, in, &w, &none);
    *d = (struct conv_shape){0};
    last_form(b, n->in[0], samples, &d->src);
    last_form(b, n->out, samples, &d->dst);
    for (int i = 0, j = 4 - in->n; j < 3; i++, j++) {
        d->stride[i] = w.s[j];
        d->dilation[i] = w.d[j] - 1;
        d->padding[i] = w.p[j];
    }
}

/* Swaps source and destination; false: it has strides, or the padding is larger than the kernel. */
static bool shape_turn(struct conv_shape *d, const struct shape *w)
{
    const struct form src = d->src;
    for (int i = 0; i < w->n - 2; i++) {
        d->padding[i] = (w->d[i + 2] - 1) * (d->dilation[i] + 1) - d->padding[i];
        if (d->stride[i] != 1 || d->padding[i] < 0) return false;
    }
    d->src = d->dst;
    d->dst = src;
    return true;
}

/* ---- packed weights -------------------------------------------------------------------------- */

static int way_find(struct be *b, const struct node *n, int samples, enum half_way way, const struct form *wei,
                    bool turned, bool add, dnnl_primitive_desc_t *pd, struct conv_shape *d)
{
    const struct shape *w = &b->g->param[n->param[0]].shape;
    conv_shape_of(b, n, samples, d);
    if (turned) shape_turn(d, w);
    d->wei = *wei;
    if (way == WAY_FORWARD && n->n_param > 1)
        d->bias = (struct form){.n = 1, .d = {b->g->param[n->param[1]].shape.d[0]}, .tag = dnnl_a};
    const enum conv_pass pass = way == WAY_BACK && !turned ? CONV_DATA : CONV_FORWARD;
    if (api_conv(b->engine, d, pass, add, pd) != dnnl_success) return -1;
    if (strncmp(api_kernel(*pd), "ref", 3) && size_align64(api_scratch(*pd)) <= (size_t)WORK_A_THREAD *
                                                                               (size_t)b->s->dev.threads) return 0;
    dnnl_primitive_desc_destroy(*pd);
    *pd = NULL;
    return -1;
}

static void half_weights_drop(struct half_weights *x)
{
    for (int i = 0; i < HALF_WAYS; i++) {
        if (x->pd[i]) dnnl_primitive_desc_destroy(x->pd[i]);
        prim_free(&x->pack[i]);
    }
    free(x);
}

void half_weights_free(struct be *b)
{
    for (int i = 0; i < b->half_weights.n; i++) half_weights_drop(b->half_weights.v[i]);
    vec_free(&b->half_weights);
}

/* From floats, as they are stored; for the turned convolution from bf16 with positions in descending order. */
static int pack_make(struct be *b, struct half_weights *x, int param, enum half_way way, struct err *e)
{
    const bool turned = way == WAY_BACK && x->turned;
    const struct form from = stored_form(b, param, turned, turned),
                      to = {.as = x->pd[way], .what = dnnl_query_weights_md};
    dnnl_primitive_desc_t pd;
    const dnnl_status_t status = api_reorder(b->engine, &from, &to, &pd);
    x->bytes[way] = api_bytes(&to);
    if (status != dnnl_success) return dnnl_fail(e, "a reorder of weights", status);
    return prim_make(b, &x->pack[way], pd, 2, (struct prim_arg[]){{DNNL_ARG_FROM, &from}, {DNNL_ARG_TO, &to}}, e);
}

/* Bytes of a form of the weights, at most: blocks of 64 and 32 channels. */
static size_t form_most(int64_t points, int64_t x, int64_t y)
{
    return (size_t)points * (size_t)((x + 63) / 64 * 64) * (size_t)((y + 63) / 64 * 64) * sizeof(uint16_t);
}

size_t conv_half_way_bytes(const struct graph *g, const struct node *n)
{
    const struct shape *w = &g->param[n->param[0]].shape;
    int64_t points = 1;
    for (int i = 2; i < w->n; i++) points *= w->d[i];
    return form_most(points, w->d[0], w->d[1]);
}

/* NULL: E_CONF, the library has no kernels. */
static struct half_weights *half_weights_of(struct be *b, const struct group *k, struct err *e)
{
    const int group = (int)(k - b->s->group);
    for (int i = 0; i < b->half_weights.n; i++) if (b->half_weights.v[i]->group == group) return b->half_weights.v[i];
    const struct node *n = group_node(b->s, k);
    const struct shape *w = &b->g->param[n->param[0]].shape;
    struct half_weights *x = mem_alloc(sizeof *x);
    struct conv_shape d;
    conv_shape_of(b, n, 1, &d);
    x->group = group;
    x->turned = shape_turn(&d, w);
    bool none = false;
    for (int way = 0; way < HALF_WAYS && !none; way++) {
        if (way == WAY_BACK && !(k->grad_in & 1)) continue;
        const bool turned = way == WAY_BACK && x->turned;
        const struct form any = weights_form(w, turned, dnnl_format_tag_any);
        none = way_find(b, n, b->s->max_samples, (enum half_way)way, &any, turned, false, &x->pd[way], &d) ||
               pack_make(b, x, n->param[0], (enum half_way)way, e) || x->bytes[way] > conv_half_way_bytes(b->g, n);
    }
    if (!none) return *vec_push(&b->half_weights) = x;
    half_weights_drop(x);
    err_set(e, E_CONF, "the library has no kernel");
    return NULL;
}

size_t conv_half_packed(const struct selection *s, const struct group *k)
{
    if (!conv_half(s, group_node(s, k))) return 0;
    return (k->grad_in & 1 ? 2 : 1) * conv_half_way_bytes(s->g, group_node(s, k));
}

/* Narrows positions in descending order. The copy takes the place of the forward form, which is made after it. */
static void turned_copy(struct be *b, const struct shape *w, const float *from, uint16_t *to)
{
    const size_t part = (size_t)(w->d[0] * w->d[1]), points = (size_t)shape_count(w) / part;
    for (size_t i = 0; i < points; i++) b->vec->narrow(to + i * part, from + (points - 1 - i) * part, part, false);
}

static int half_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed,
                     struct err *e)
{
    const enum half_way way = ph == PH_FWD ? WAY_FORWARD : WAY_BACK;
    struct half_weights *x = half_weights_of(b, k, e);
    char *to = (char *)packed + (way == WAY_BACK ? conv_half_way_bytes(b->g, group_node(b->s, k)) : 0);
    if (!x) return -1;
    const bool turned = way == WAY_BACK && x->turned;
    if (turned) turned_copy(b, &b->g->param[k->param[0]].shape, param[0], packed);
    return prim_run(b, &x->pack[way], NULL, (void *[]){turned ? packed : param[0], to}, e);
}

/* ---- running --------------------------------------------------------------------------------- */

static int conv_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_half *k = (struct conv_half *)base;
    return prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], c->packed, c->out, c->param[1]}, e);
}

static int conv_data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_half *k = (struct conv_half *)base;
    const bool acc = c->gin_acc & 1;
    void *wei = (char *)c->packed + k->at;
    if (acc && k->adds) return prim_run(b, &k->add, c->work, (void *[]){(void *)c->gout, wei, c->gin[0]}, e);
    uint16_t *out = acc ? (uint16_t *)((char *)c->work + size_align64(k->p.scratch)) : c->gin[0];
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->gout, wei, out}, e)) return -1;
    if (acc) half_add(c->gin[0], out, k->count);
    return 0;
}

static int conv_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_half *k = (struct conv_half *)base;
    const struct shape *out = &b->g->tensor[base->node->out].shape;
    if (c->pgrad[1])
        cpu_sum_rows(b, c->gout, base->key.samples * shape_points(out), out->d[0], c->pgrad[1], c->pgrad_acc);
    if (!c->pgrad[0]) return 0;
    char *made = (char *)c->work + size_align64(k->p.scratch);
    float *sum = c->pgrad_acc ? (float *)(made + size_align64(k->bytes)) : c->pgrad[0];
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], (void *)c->gout, made}, e)) return -1;
    if (prim_run(b, &k->order, NULL, (void *[]){made, sum}, e)) return -1;
    if (c->pgrad_acc) b->vec->add(c->pgrad[0], sum, k->count);
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* A kernel whose weights have the form that was chosen for the largest micro-batch. */
static int way_make(struct be *b, const struct conv_half *k, const struct half_weights *x, enum half_way way, bool add,
                    struct prim *p, struct err *e)
{
    const bool turned = way == WAY_BACK && x->turned, data = way == WAY_BACK && !x->turned;
    struct form wei = weights_form(&b->g->param[k->base.node->param[0]].shape, turned, dnnl_format_tag_any);
    wei.as = x->pd[way];
    wei.what = dnnl_query_weights_md;
    struct conv_shape d;
    dnnl_primitive_desc_t pd;
    if (way_find(b, k->base.node, k->base.key.samples, way, &wei, turned, add, &pd, &d))
        return err_set(e, E_CONF, "the library has no kernel");
    const struct prim_arg arg[] = {{data ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, data ? &d.dst : &d.src},
                                   {DNNL_ARG_WEIGHTS, &d.wei},
                                   {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, data ? &d.src : &d.dst},
                                   {DNNL_ARG_BIAS, &d.bias}};
    return prim_make(b, p, pd, d.bias.n ? 4 : 3, arg, e);
}

/* Does some position of the kernel read nothing but padding? */
static bool reads_padding_alone(const struct conv_shape *d, const struct shape *w, const struct shape *in,
                                const struct shape *out)
{
    bool any = false;
    for (int i = 0; i < w->n - 2; i++)
        for (int64_t k = 0; k < w->d[i + 2]; k++) {
            bool reads = false;
            for (int64_t o = 0; o < out->d[i + 1]; o++) {
                const int64_t at = o * d->stride[i] - d->padding[i] + k * (d->dilation[i] + 1);
                reads |= at >= 0 && at < in->d[i + 1];
            }
            any |= !reads;
        }
    return any;
}

static int weights_make(struct be *b, struct conv_half *k, struct err *e)
{
    const struct node *n = k->base.node;
    const struct shape *w = &b->g->param[n->param[0]].shape;
    const struct form to = stored_form(b, n->param[0], false, false);
    struct conv_shape d;
    dnnl_primitive_desc_t pd, order = NULL;
    conv_shape_of(b, n, k->base.key.samples, &d);
    if (reads_padding_alone(&d, w, &b->g->tensor[n->in[0]].shape, &b->g->tensor[n->out].shape))
        return err_set(e, E_CONF, "oneDNN reads beyond such inputs");   /* 2.6.3, by jit_bf16 */
    d.wei = weights_form(w, false, dnnl_format_tag_any);
    d.wei.half = false;
    k->count = (size_t)shape_count(w);
    k->base.run = conv_weights_run;
    if (api_conv(b->engine, &d, CONV_WEIGHTS, false, &pd) != dnnl_success)
        return err_set(e, E_CONF, "the library has no kernel");
    const struct form made = {.n = 1, .as = pd, .what = dnnl_query_diff_weights_md};
    int bad = api_reorder(b->engine, &made, &to, &order) != dnnl_success;
    k->bytes = api_bytes(&made);
    bad = bad || !strncmp(api_kernel(pd), "ref", 3) ? err_set(e, E_CONF, "the library has no kernel") : 0;
    const struct prim_arg move[] = {{DNNL_ARG_FROM, &made}, {DNNL_ARG_TO, &to}},
                          arg[] = {{DNNL_ARG_SRC, &d.src}, {DNNL_ARG_DIFF_DST, &d.dst}, {DNNL_ARG_DIFF_WEIGHTS, &made}};
    bad = bad || kernel_workspace(b, &k->base, size_align64(api_scratch(pd)) + size_align64(k->bytes) +
                                                   size_align64(k->count * sizeof(float)), e);
    if (!bad) bad = prim_make(b, &k->order, order, 2, move, e), order = NULL;
    if (!bad) return prim_make(b, &k->p, pd, 3, arg, e);
    dnnl_primitive_desc_destroy(pd);
    if (order) dnnl_primitive_desc_destroy(order);
    return -1;
}

static void conv_half_close(struct be_kernel *base)
{
    struct conv_half *k = (struct conv_half *)base;
    prim_free(&k->p);
    prim_free(&k->add);
    prim_free(&k->order);
}

static int passes_make(struct be *b, struct conv_half *k, struct err *e)
{
    const struct group *g = k->base.k;
    const struct half_weights *x = half_weights_of(b, g, e);
    if (!x) return -1;
    if (!g->packed_bytes || (k->base.key.phase == PH_BWD_DATA && !x->pd[WAY_BACK]))
        return err_set(e, E_CONF, "no packed weights are planned");
    if (k->base.key.phase == PH_FWD) {
        k->base.run = conv_forward_run;
        return way_make(b, k, x, WAY_FORWARD, false, &k->p, e);
    }
    struct err no = {0};
    k->base.run = conv_data_run;
    k->at = conv_half_way_bytes(b->g, k->base.node);
    k->count = tensor_bytes(b, g->in[0], k->base.key.samples) / sizeof(float);
    if (way_make(b, k, x, WAY_BACK, false, &k->p, e)) return -1;
    if (b->g->tensor[g->in[0]].n_readers < 2) return 0;
    k->adds = x->turned && !way_make(b, k, x, WAY_BACK, true, &k->add, &no);
    return k->adds ? 0 : kernel_workspace(b, &k->base, size_align64(k->p.scratch) + k->count * sizeof(uint16_t), e);
}

static struct be_kernel *conv_half_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct conv_half *k = kernel_new(like, sizeof *k);
    k->base.close = conv_half_close;
    const int bad = like->key.phase == PH_BWD_WEIGHTS ? weights_make(b, k, e) : passes_make(b, k, e);
    snprintf(k->base.name, sizeof k->base.name, "%s", k->p.name);
    if (!bad) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

struct be_kernel *conv_half_on_last(struct be *b, const struct be_kernel *like, kernel_maker *make, struct err *e)
{
    const bool last = b->s->tensor[like->k->in[0]].layout == LAYOUT_LAST;
    return last ? make(b, like, e) : cpu_convert_make(b, like, CPU_LAST, make, e);
}

static struct be_kernel *conv_half_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return conv_half_on_last(b, like, conv_half_make, e);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum layout conv_half_layout(const struct selection *s, const struct node *n)
{
    return conv_half(s, n) ? LAYOUT_LAST : LAYOUT_NONE;
}

enum layout conv_half_param_layout(const struct selection *s, const struct node *n, int slot)
{
    if (slot || !conv_half(s, n)) return LAYOUT_NONE;
    const struct shape *w = &s->g->param[n->param[0]].shape;
    return w->d[0] * w->d[1] == shape_count(w) && w->d[1] > w->d[0] ? LAYOUT_PLAIN : LAYOUT_LAST;
}

static size_t half_workspace(const struct selection *s, const struct group *k)
{
    return CPU_WORK + (size_t)WORK_A_THREAD * (size_t)s->dev.threads;
}

/* The library's copies of both sides, and sums in its order. */
static size_t half_weights_workspace(const struct selection *s, const struct group *k)
{
    const size_t weights = size_align64(graph_param_bytes(s->g, k->param[0])),
                 values = select_sample_bytes(s, k->in[0]) + select_sample_bytes(s, k->out);
    return half_workspace(s, k) + 3 * weights + 2 * (size_t)s->max_samples * values;
}

const struct kernel_row cpu_rows_conv_half[] = {
    {.name = "bf16", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_BWD_WEIGHTS), .types = TAKES(BF16),
     .layouts = ROW_ANY_LAYOUT, .cost = 0.4, .refuses = conv_half_refuses, .workspace = half_weights_workspace,
     .asks = true, .make = conv_half_row},
    {.name = "bf16", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_FWD) | ROW_PHASE(PH_BWD_DATA),
     .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.4, .refuses = conv_half_refuses,
     .layout = conv_half_layout, .param_layout = conv_half_param_layout, .workspace = half_workspace,
     .packed = conv_half_packed, .asks = true, .make = conv_half_row, .pack = half_pack},
    {0}};
