/* Convolutions by oneDNN's direct algorithm (never its Winograd kernels, which give other numbers), and by this
 * backend's own weight gradients where they are better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_product.h"
#include "backend/cpu/cpu_wgrad.h"

struct conv_kernel {
    struct be_kernel base;
    struct prim p, acc;                                  /* acc: adds to its output (1x1 backward-data) */
    bool has_acc, packed;                                /* packed: backward-data reads the packed weights */
    struct wgrad *own;                                   /* own weight gradient kernel, NULL: oneDNN's */
    struct vec_depthwise depthwise;                      /* own weight gradient of a depthwise convolution */
    size_t out_bytes[2]; /* of the result: input gradient; or weight and bias gradient */
};

static void spatial_attr(const struct node *n, const char *name, int spatial, int64_t sub, dnnl_dims_t out)
{
    const struct attr_value *v = &n->attr[op_attr(n->op, name)];
    for (int i = 0; i < spatial; i++) out[i] = v->i[v->n > 1 ? i : 0] - sub;
}

static void shape_fill(const struct be *b, const struct be_kernel *k, struct conv_shape *d)
{
    const struct node *n = k->node;
    int spatial = b->g->tensor[n->in[0]].shape.n - 1;
    form_tensor(b, n->in[0], kernel_lanes(b, k, n->in[0]), k->key.samples, &d->src);
    form_tensor(b, n->out, kernel_lanes(b, k, n->out), k->key.samples, &d->dst);
    form_weight(b, n->param[0], n->attr[op_attr(n->op, "groups")].i[0], &d->wei);
    spatial_attr(n, "stride", spatial, 0, d->stride);
    spatial_attr(n, "dilation", spatial, 1, d->dilation);
    spatial_attr(n, "padding", spatial, 0, d->padding);
    if (n->n_param > 1) d->bias = (struct form){.n = 1, .d = {b->g->param[n->param[1]].shape.d[0]}, .tag = dnnl_a};
}

bool dnnl_conv_pointwise(const struct be *b, const struct node *n)
{
    struct weight_form f = weight_form(b, n->param[0]);
    dnnl_dims_t stride, padding;
    int spatial = b->g->tensor[n->in[0]].shape.n - 1;
    spatial_attr(n, "stride", spatial, 0, stride);
    spatial_attr(n, "padding", spatial, 0, padding);
    for (int i = 0; i < spatial; i++)
        if (stride[i] != 1 || padding[i] != 0) return false;
    return f.points == 1 && f.lanes > 1 && !f.in_plain;
}

/* Groups of one input or one output channel in plain layout. The library's products are then a hundred times slower
 * than with many channels, ours ten times. */
static bool is_meagre(const struct selection *s, const struct group *k)
{
    const struct node *n = group_node(s, k);
    int64_t groups = n->attr[op_attr(n->op, "groups")].i[0], in = s->g->tensor[n->in[0]].shape.d[0],
            out = s->g->tensor[n->out].shape.d[0];
    return groups > 1 && (groups == in || groups == out) && format_lanes(&s->tensor[n->out]) == 1;
}

const char *cpu_single_channels_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    return is_meagre(s, k) ? "outside blocks of them" : NULL;
}

const char *cpu_several_channels_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    return is_meagre(s, k) ? NULL : "";
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static int forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    return prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], c->param[0], c->out, c->param[1]}, e);
}

static int data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    bool acc = c->gin_acc & 1;
    void *wei = k->packed ? c->packed : c->param[0];
    if (acc && k->has_acc) return prim_run(b, &k->acc, c->work, (void *[]){(void *)c->gout, wei, c->gin[0]}, e);
    float *out = acc ? (float *)((char *)c->work + size_align64(k->p.scratch)) : c->gin[0];
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->gout, wei, out}, e)) return -1;
    if (acc) cpu_add(b, c->gin[0], out, k->out_bytes[0] / sizeof(float));
    return 0;
}

static int weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    float *wei = c->pgrad[0], *bias = c->pgrad[1];
    if (c->pgrad_acc || !wei) wei = (float *)((char *)c->work + size_align64(k->p.scratch));
    if (c->pgrad_acc || !bias)
        bias = (float *)((char *)c->work + size_align64(k->p.scratch) + size_align64(k->out_bytes[0]));
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], (void *)c->gout, wei, bias}, e)) return -1;
    if (!c->pgrad_acc) return 0;
    if (c->pgrad[0]) cpu_add(b, c->pgrad[0], wei, k->out_bytes[0] / sizeof(float));
    if (c->pgrad[1]) b->vec->add(c->pgrad[1], bias, k->out_bytes[1] / sizeof(float));
    return 0;
}

/* The order is that of a weight's sum. */
void dnnl_conv_bias(const struct be *b, const struct be_kernel *k, const float *gout, float *bias, bool acc)
{
    const struct shape *out = &b->g->tensor[k->node->out].shape;
    int64_t channels = out->d[0], points = shape_points(out);
    int lanes = kernel_lanes(b, k, k->node->out);
    if (!acc) memset(bias, 0, (size_t)channels * sizeof *bias);
    for (int n = 0; n < k->key.samples; n++)
        for (int64_t c = 0; c < channels; c += lanes)
            for (int64_t p = 0; p < points; p++, gout += lanes)
                for (int l = 0; l < lanes; l++) bias[c + l] += gout[l];
}

static int own_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    if (c->pgrad[0])
        wgrad_run(((struct conv_kernel *)base)->own, c->in[0], c->gout, c->pgrad[0], c->pgrad_acc, c->work);
    if (c->pgrad[1]) dnnl_conv_bias(b, base, c->gout, c->pgrad[1], c->pgrad_acc);
    return 0;
}

static int depthwise_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    b->vec->depthwise_weights(&((struct conv_kernel *)base)->depthwise, c->in[0], c->gout, c->pgrad[0], c->pgrad[1],
                              c->pgrad_acc);
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------------------------- */

/* Does the library's kernel multiply matrices sample by sample and group by group although these are too small for
 * that? Ours gathers samples, and adds windows directly where groups have one channel (dnnl_product.c). On AVX-512 the
 * library's kernel stays, for the sake of the bits of earlier runs. */
static bool is_thin(const struct be *b, const struct conv_shape *d, const char *kernel)
{
    bool depthwise = d->wei.n > d->src.n && d->wei.d[1] == 1 && d->wei.d[2] == 1;
    int64_t points = 1;
    if (b->lanes == 16 || !strstr(kernel, "gemm")) return false;
    for (int i = 2; i < d->dst.n; i++) points *= d->dst.d[i];
    return depthwise || (b->lanes == 1 && d->wei.n == d->src.n && product_gathers(points));
}

struct wanted { enum conv_pass pass; bool add; size_t space; };

/* The library's kernel for a pass. NULL, with the reason in e: it has only its reference loop, which is a thousand
 * times slower, or only a kernel that needs more than `space`. */
static dnnl_primitive_desc_t library_find(const struct be *b, const struct conv_shape *d, struct wanted w,
                                          struct err *e)
{
    dnnl_primitive_desc_t pd;
    const char *why = "the library has no kernel";
    if (api_conv(b->engine, d, w.pass, w.add, &pd) == dnnl_success) {
        bool none = !strncmp(api_kernel(pd), "ref", 3), thin = !none && is_thin(b, d, api_kernel(pd));
        if (!none && !thin && size_align64(api_scratch(pd)) <= w.space) return pd;
        if (!none) why = thin ? "faster than the library's" : "the library's kernel needs more memory than planned";
        dnnl_primitive_desc_destroy(pd);
    }
    err_set(e, E_CONF, "%s", why);
    return NULL;
}

/* Workspace of the kernel besides `out` bytes of its own. */
static size_t room_of(const struct conv_kernel *k, size_t out)
{
    size_t all = group_workspace(k->base.k, k->base.key.samples), gone = k->base.taken + out;
    return all > gone ? all - gone : 0;
}

/* 1: the library has no kernel */
static int forward_make(struct be *b, struct conv_kernel *k, const struct conv_shape *d, struct err *e)
{
    const struct prim_arg arg[] = {{DNNL_ARG_SRC, &d->src}, {DNNL_ARG_WEIGHTS, &d->wei}, {DNNL_ARG_DST, &d->dst},
                                   {DNNL_ARG_BIAS, &d->bias}};
    dnnl_primitive_desc_t pd = library_find(b, d, (struct wanted){CONV_FORWARD, false, room_of(k, 0)}, e);
    k->base.run = forward_run;
    return pd ? prim_make(b, &k->p, pd, d->bias.n ? 4 : 3, arg, e) : 1;
}

/* Bytes (out_bytes) for a gradient that must be added to the old one, if no kernel of the library adds: it is then
 * computed separately. */
static size_t data_apart(const struct be *b, const struct conv_kernel *k)
{
    return b->g->tensor[k->base.node->in[0]].n_readers > 1 ? size_align64(k->out_bytes[0]) : 0;
}

/* Source and destination are swapped; the packed weights are the forward weights of that convolution. */
static int pointwise_data_make(struct be *b, struct conv_kernel *k, const struct conv_shape *d, bool add, struct err *e)
{
    struct conv_shape s = *d;
    const struct prim_arg arg[] = {{DNNL_ARG_SRC, &s.src}, {DNNL_ARG_WEIGHTS, &s.wei}, {DNNL_ARG_DST, &s.dst}};
    s.src = d->dst;
    s.dst = d->src;
    s.bias.n = 0;
    form_packed(b, k->base.node->param[0], true, &s.wei);
    struct wanted want = {CONV_FORWARD, add, room_of(k, add ? 0 : data_apart(b, k))};
    dnnl_primitive_desc_t pd = library_find(b, &s, want, e);
    return pd ? prim_make(b, add ? &k->acc : &k->p, pd, 3, arg, e) : 1;
}

static int data_make(struct be *b, struct conv_kernel *k, const struct conv_shape *d, struct err *e)
{
    const struct node *n = k->base.node;
    k->base.run = data_run;
    k->out_bytes[0] = tensor_bytes(b, n->in[0], k->base.key.samples);
    k->packed = k->base.k->packed_bytes && !weight_form(b, n->param[0]).in_plain;
    if (dnnl_conv_pointwise(b, n) && k->packed) {
        int made = pointwise_data_make(b, k, d, false, e);
        if (made || b->g->tensor[n->in[0]].n_readers == 1) return made;
        made = pointwise_data_make(b, k, d, true, e);
        k->has_acc = !made;
        return made < 0 ? -1 : 0;
    }
    struct conv_shape w = *d;
    const struct prim_arg arg[] = {{DNNL_ARG_DIFF_DST, &w.dst}, {DNNL_ARG_WEIGHTS, &w.wei},
                                   {DNNL_ARG_DIFF_SRC, &w.src}};
    if (k->packed) form_packed(b, n->param[0], false, &w.wei);
    dnnl_primitive_desc_t pd = library_find(b, &w, (struct wanted){CONV_DATA, false, room_of(k, data_apart(b, k))}, e);
    return pd ? prim_make(b, &k->p, pd, 3, arg, e) : 1;
}

static int weights_make(struct be *b, struct conv_kernel *k, const struct conv_shape *d, struct err *e)
{
    const struct prim_arg arg[] = {{DNNL_ARG_SRC, &d->src}, {DNNL_ARG_DIFF_DST, &d->dst},
                                   {DNNL_ARG_DIFF_WEIGHTS, &d->wei}, {DNNL_ARG_DIFF_BIAS, &d->bias}};
    const struct node *n = k->base.node;
    for (int i = 0; i < n->n_param; i++)
        k->out_bytes[i] = (size_t)shape_count(&b->g->param[n->param[i]].shape) * sizeof(float);
    size_t sums = size_align64(k->out_bytes[0]) + size_align64(k->out_bytes[1]);
    dnnl_primitive_desc_t pd = library_find(b, d, (struct wanted){CONV_WEIGHTS, false, room_of(k, sums)}, e);
    k->base.run = weights_run;
    return pd ? prim_make(b, &k->p, pd, d->bias.n ? 4 : 3, arg, e) : 1;
}

static void conv_close(struct be_kernel *base)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    prim_free(&k->p);
    prim_free(&k->acc);
    wgrad_free(k->own);
}

static struct conv_kernel *conv_new(struct be *b, const struct be_kernel *like, struct conv_shape *d)
{
    struct conv_kernel *k = kernel_new(like, sizeof *k);
    *d = (struct conv_shape){0};
    shape_fill(b, like, d);
    k->base.close = conv_close;
    return k;
}

static struct be_kernel *library_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct conv_shape d;
    struct conv_kernel *k = conv_new(b, like, &d);
    int made = like->key.phase == PH_FWD        ? forward_make(b, k, &d, e)
               : like->key.phase == PH_BWD_DATA ? data_make(b, k, &d, e)
                                                : weights_make(b, k, &d, e);
    snprintf(k->base.name, sizeof k->base.name, "%s", k->p.name);
    if (!made) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* ---- own weight gradients -------------------------------------------------------------------------------------- */

/* The shape as the own kernel has it; false: it does not take it. */
static bool wgrad_shape_of(const struct be *b, const struct be_kernel *k, struct wgrad_shape *s)
{
    const struct node *n = k->node;
    const struct shape *in = &b->g->tensor[n->in[0]].shape, *out = &b->g->tensor[n->out].shape,
                       *w = &b->g->param[n->param[0]].shape;
    struct weight_form f = weight_form(b, n->param[0]);
    struct conv_shape d = {0};
    if (f.lanes == 1 || f.in_plain || in->n - 1 > WGRAD_DIMS) return false;
    shape_fill(b, k, &d);
    *s = (struct wgrad_shape){.n = k->key.samples,
                              .dims = in->n - 1,
                              .lanes = f.lanes,
                              .threads = b->s->dev.threads,
                              .in_blocks = f.in / f.lanes,
                              .out_blocks = f.out / f.lanes};
    for (int i = 0; i < s->dims; i++) {
        s->in[i] = in->d[i + 1];
        s->out[i] = out->d[i + 1];
        s->kernel[i] = w->d[i + 2];
        s->stride[i] = d.stride[i];
        s->padding[i] = d.padding[i];
        s->dilation[i] = d.dilation[i] + 1;
    }
    return wgrad_can(s);
}

static struct be_kernel *wgrad_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct conv_shape d;
    struct wgrad_shape s;
    struct conv_kernel *k = conv_new(b, like, &d);
    k->base.run = own_weights_run;
    if (wgrad_shape_of(b, like, &s)) k->own = wgrad_new(&s);
    if (k->own && !kernel_workspace(b, &k->base, wgrad_work(&s), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* A depthwise convolution on blocks for which the library has no weight gradient, for example with kernels of 5x5. */
static struct be_kernel *depthwise_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct conv_shape d;
    struct conv_kernel *k = conv_new(b, like, &d);
    k->depthwise = (struct vec_depthwise){.n = like->key.samples, .blocks = d.src.d[1] / b->lanes};
    for (int i = 0; i < 2; i++) {
        k->depthwise.in[i] = d.src.d[2 + i];
        k->depthwise.out[i] = d.dst.d[2 + i];
        k->depthwise.kernel[i] = d.wei.d[3 + i];
        k->depthwise.stride[i] = d.stride[i];
        k->depthwise.padding[i] = d.padding[i];
        k->depthwise.dilation[i] = d.dilation[i] + 1;
    }
    k->base.run = depthwise_weights_run;
    return &k->base;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Blocked weights need blocked tensors: others are copied. Without groups of channels, weights of groups are plain. */
static struct be_kernel *on_blocks(struct be *b, const struct be_kernel *like, kernel_maker *make, struct err *e)
{
    const struct node *n = like->node;
    struct weight_form f = weight_form(b, n->param[0]);
    bool groups = n->attr[op_attr(n->op, "groups")].i[0] > 1;
    bool mixed = f.lanes > 1 && (!f.in_plain || groups) && tensor_lanes(b, n->in[0]) == 1;
    return mixed ? cpu_convert_make(b, like, f.lanes, make, e) : make(b, like, e);
}

static struct be_kernel *library_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return on_blocks(b, like, library_make, e);
}
static struct be_kernel *wgrad_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return on_blocks(b, like, wgrad_make, e);
}
static struct be_kernel *depthwise_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return on_blocks(b, like, depthwise_make, e);
}

static const char *library_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    if (s->param[k->param[0]].layout == LAYOUT_LAST) return "weights with channels last";
    return cpu_single_channels_refuse(s, k, ph);
}

static bool wgrad_takes(const struct selection *s, const struct group *k, struct wgrad_shape *w)
{
    const struct be_kernel like = {.key = {.phase = PH_BWD_WEIGHTS, .samples = s->max_samples}, .k = k,
                                   .node = group_node(s, k)};
    return wgrad_shape_of(&(struct be){.s = s, .g = s->g}, &like, w);
}

/* The library sums a bias's gradient in the same pass, so with a bias its kernel is preferred. */
static const char *wgrad_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    struct wgrad_shape w;
    return k->n_param == 1 && wgrad_takes(s, k, &w) && wgrad_wanted(&w) ? NULL : "";
}

static const char *wgrad_any_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    struct wgrad_shape w;
    return wgrad_takes(s, k, &w) ? NULL : "";
}

static const char *depthwise_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct node *n = group_node(s, k);
    bool takes = n->attr[op_attr(n->op, "groups")].i[0] > 1 && s->g->tensor[n->in[0]].shape.n == 3 &&
                 format_lanes(&s->param[n->param[0]]) > 1;
    return takes ? NULL : "";
}

/* A convolution works on blocks of channels if these divide its outputs and each output reads all inputs; or, over
 * planes, if each output reads only its own input (depthwise). */
static enum layout conv_layout(const struct selection *s, const struct node *n)
{
    const struct shape *in = &s->g->tensor[n->in[0]].shape, *out = &s->g->tensor[n->out].shape;
    int64_t groups = n->attr[op_attr(n->op, "groups")].i[0];
    bool blocks = out->d[0] % s->dev.block == 0 &&
                  (groups == 1 || (groups == in->d[0] && groups == out->d[0] && in->n == 3));
    return blocks ? LAYOUT_BLOCKED : LAYOUT_PLAIN;
}

static enum layout conv_param_layout(const struct selection *s, const struct node *n, int slot)
{
    return slot ? LAYOUT_NONE : s->tensor[n->out].layout;
}

/* The library's convolutions need at most 2 MiB of scratchpad (measured at batch 20), products at most 4 MiB
 * (product_work). Own weight gradients need some more for each further thread. */
static size_t conv_workspace(const struct selection *s, const struct group *k)
{
    struct wgrad_shape one, all;
    if (!wgrad_takes(s, k, &all)) return CPU_CONV_WORK;
    one = all;
    one.threads = 1;
    return CPU_CONV_WORK + wgrad_work(&all) - wgrad_work(&one);
}

/* Transposed weights are for input gradients. */
static size_t conv_packed(const struct selection *s, const struct group *k)
{
    bool blocked = s->param[k->param[0]].layout != LAYOUT_PLAIN &&
                   s->g->param[k->param[0]].shape.d[1] % s->dev.block == 0;
    return blocked && k->grad_in & 1 ? size_align64(graph_param_bytes(s->g, k->param[0])) : 0;
}

const struct kernel_row cpu_rows_conv[] = {
    {.name = "wgrad", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_BWD_WEIGHTS), .isa = ISA_AVX2, .cost = 0.9,
     .refuses = wgrad_refuses, .workspace = conv_workspace, .make = wgrad_row},
    {.name = "onednn", .pattern = PATTERN_OP("conv"), .refuses = library_refuses, .layout = conv_layout,
     .param_layout = conv_param_layout, .workspace = conv_workspace, .packed = conv_packed, .asks = true,
     .make = library_row},
    {.name = "wgrad", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_BWD_WEIGHTS), .isa = ISA_AVX2, .cost = 2,
     .refuses = wgrad_any_refuses, .workspace = conv_workspace, .make = wgrad_row},
    {.name = "depthwise", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_BWD_WEIGHTS), .isa = ISA_AVX2,
     .cost = 3, .refuses = depthwise_refuses, .workspace = conv_workspace, .make = depthwise_row},
    {.name = "onednn", .pattern = PATTERN_OP("conv"), .cost = 30, .refuses = cpu_several_channels_refuse,
     .workspace = conv_workspace, .packed = conv_packed, .fallback = "products of single channels", .slow = true,
     .asks = true, .make = library_row},
    {0}};
