/* Convolutions by oneDNN's direct algorithm (never Winograd: other numbers). */
#include <stdlib.h>
#include "backend/dnnl_int.h"
#include "backend/dnnl_wgrad.h"

/* How the arguments of one convolution reach oneDNN. */
struct conv_desc {
    dnnl_memory_desc_t src, wei, bias, dst;
    dnnl_dims_t stride, dilation, padding;
    bool has_bias;
};

struct conv_kernel {
    struct be_kernel base;
    struct prim p, acc;                                  /* acc: adds to its output (1x1 backward-data) */
    bool has_acc, derived;                               /* derived: backward-data reads the derived weights */
    struct wgrad *own;                                   /* own weight gradient kernel, NULL: oneDNN's */
    size_t out_bytes[2];                                 /* of what is computed: input gradient; or weight and bias gradient */
};

static void spatial_attr(const struct node *n, const char *name, int spatial, int64_t sub, dnnl_dims_t out)
{
    const struct attr_value *v = &n->attr[op_attr(n->op, name)];
    for (int i = 0; i < spatial; i++) out[i] = v->i[v->n > 1 ? i : 0] - sub;
}

static void desc_fill(const struct be *b, const struct be_kernel *k, struct conv_desc *d)
{
    const struct node *n = k->node;
    int spatial = b->g->tensor[n->in[0]].shape.n - 1;
    md_tensor(b, n->in[0], kernel_lanes(b, k, n->in[0]), k->samples, &d->src);
    md_tensor(b, n->out, kernel_lanes(b, k, n->out), k->samples, &d->dst);
    md_weight(b, n->param[0], n->attr[op_attr(n->op, "groups")].i[0], &d->wei);
    spatial_attr(n, "stride", spatial, 0, d->stride);
    spatial_attr(n, "dilation", spatial, 1, d->dilation);
    spatial_attr(n, "padding", spatial, 0, d->padding);
    d->has_bias = n->n_param > 1;
    if (d->has_bias) dnnl_memory_desc_init_by_tag(&d->bias, 1, (dnnl_dims_t){b->g->param[n->param[1]].shape.d[0]}, dnnl_f32, dnnl_a);
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

static int attr_make(dnnl_primitive_attr_t *attr, bool add, struct err *e)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success) return dnnl_fail(e, "creating attributes", status);
    dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (!add) return 0;
    dnnl_post_ops_t ops;
    status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success) {
        dnnl_post_ops_append_sum(ops, 1.0f);
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    if (status == dnnl_success) return 0;
    dnnl_primitive_attr_destroy(*attr);
    return dnnl_fail(e, "creating attributes", status);
}

static dnnl_status_t pd_forward(const struct be *b, const struct conv_desc *d, bool add, dnnl_primitive_desc_t *pd, struct err *e)
{
    dnnl_convolution_desc_t c;
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct, &d->src, &d->wei,
        d->has_bias ? &d->bias : NULL, &d->dst, d->stride, d->dilation, d->padding, d->padding);
    if (status != dnnl_success) return status;
    if (attr_make(&attr, add, e)) return dnnl_runtime_error;
    status = dnnl_primitive_desc_create(pd, &c, attr, b->engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t pd_backward(const struct be *b, const struct conv_desc *d, bool weights, dnnl_primitive_desc_t *pd, struct err *e)
{
    dnnl_convolution_desc_t c;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint;
    struct conv_desc f = *d;                             /* the hint's weights: of the forward pass, any layout will do */
    if (!weights) {
        dnnl_memory_desc_init_by_tag(&f.wei, d->wei.ndims, d->wei.dims, dnnl_f32, dnnl_format_tag_any);
        f.has_bias = false;
    }
    dnnl_status_t status = pd_forward(b, &f, false, &hint, e);
    if (status != dnnl_success) return status;
    status = weights ? dnnl_dilated_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &d->src, &d->wei,
                           d->has_bias ? &d->bias : NULL, &d->dst, d->stride, d->dilation, d->padding, d->padding)
                     : dnnl_dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &d->src, &d->wei, &d->dst, d->stride,
                           d->dilation, d->padding, d->padding);
    if (status == dnnl_success && attr_make(&attr, false, e)) status = dnnl_runtime_error;
    if (status == dnnl_success) {
        status = dnnl_primitive_desc_create(pd, &c, attr, b->engine, hint);
        dnnl_primitive_attr_destroy(attr);
    }
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* ---- running ---------------------------------------------------------------------------------------------------------------------- */

static int forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    return prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], c->param[0], c->out, c->param[1]}, e);
}

static int data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    bool acc = c->gin_acc & 1;
    void *wei = k->derived ? c->derived : c->param[0];
    if (acc && k->has_acc) return prim_run(b, &k->acc, c->work, (void *[]){(void *)c->gout, wei, c->gin[0]}, e);
    float *out = acc ? (float *)((char *)c->work + align64(k->p.scratch)) : c->gin[0];
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->gout, wei, out}, e)) return -1;
    if (acc) b->vec->add(c->gin[0], out, k->out_bytes[0] / sizeof(float));
    return 0;
}

static int weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    float *wei = c->pgrad[0], *bias = c->pgrad[1];
    if (c->pgrad_acc || !wei) wei = (float *)((char *)c->work + align64(k->p.scratch));
    if (c->pgrad_acc || !bias) bias = (float *)((char *)c->work + align64(k->p.scratch) + align64(k->out_bytes[0]));
    if (prim_run(b, &k->p, c->work, (void *[]){(void *)c->in[0], (void *)c->gout, wei, bias}, e)) return -1;
    if (!c->pgrad_acc) return 0;
    if (c->pgrad[0]) b->vec->add(c->pgrad[0], wei, k->out_bytes[0] / sizeof(float));
    if (c->pgrad[1]) b->vec->add(c->pgrad[1], bias, k->out_bytes[1] / sizeof(float));
    return 0;
}

static int own_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    wgrad_run(((struct conv_kernel *)base)->own, c->in[0], c->gout, c->pgrad[0], c->pgrad_acc, c->work);
    return 0;
}

/* ---- making ----------------------------------------------------------------------------------------------------------------------- */

static int forward_make(struct be *b, struct conv_kernel *k, const struct conv_desc *d, struct err *e)
{
    static const int arg[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    static const dnnl_query_t query[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md, dnnl_query_weights_md};
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = pd_forward(b, d, false, &pd, e);
    if (status != dnnl_success) return dnnl_fail(e, "convolution forward", status);
    k->base.run = forward_run;
    return prim_make(b, &k->p, pd, d->has_bias ? 4 : 3, arg, query, e);
}

/* Source and destination change places; the derived weights are the forward weights of that convolution. */
static int pointwise_data_make(struct be *b, struct conv_kernel *k, const struct conv_desc *d, bool add, struct err *e)
{
    static const int arg[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    static const dnnl_query_t query[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md};
    struct conv_desc s = *d;
    s.src = d->dst;
    s.dst = d->src;
    s.has_bias = false;
    md_derived(b, k->base.node->param[0], true, &s.wei);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = pd_forward(b, &s, add, &pd, e);
    if (status != dnnl_success) return dnnl_fail(e, "convolution backward-data", status);
    return prim_make(b, add ? &k->acc : &k->p, pd, 3, arg, query, e);
}

static int data_make(struct be *b, struct conv_kernel *k, const struct conv_desc *d, struct err *e)
{
    static const int arg[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
    static const dnnl_query_t query[] = {dnnl_query_diff_dst_md, dnnl_query_weights_md, dnnl_query_diff_src_md};
    const struct node *n = k->base.node;
    k->base.run = data_run;
    k->out_bytes[0] = tensor_bytes(b, n->in[0], k->base.samples);
    k->derived = k->base.k->derived_bytes && !weight_form(b, n->param[0]).in_plain;
    if (dnnl_conv_pointwise(b, n) && k->derived) {
        if (pointwise_data_make(b, k, d, false, e)) return -1;
        k->has_acc = b->g->tensor[n->in[0]].n_readers > 1;
        return k->has_acc ? pointwise_data_make(b, k, d, true, e) : 0;
    }
    struct conv_desc w = *d;
    if (k->derived) md_derived(b, n->param[0], false, &w.wei);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = pd_backward(b, &w, false, &pd, e);
    if (status != dnnl_success) return dnnl_fail(e, "convolution backward-data", status);
    return prim_make(b, &k->p, pd, 3, arg, query, e);
}

/* The own kernel if it takes the shape and is the better one. */
static struct wgrad *own_find(const struct be *b, const struct conv_kernel *k, const struct conv_desc *d)
{
    const struct node *n = k->base.node;
    const struct shape *in = &b->g->tensor[n->in[0]].shape, *out = &b->g->tensor[n->out].shape, *w = &b->g->param[n->param[0]].shape;
    struct weight_form f = weight_form(b, n->param[0]);
    if (f.lanes != 16 || f.in_plain || d->has_bias || in->n - 1 > WGRAD_DIMS) return NULL;
    struct wgrad_shape s = {.n = k->base.samples, .dims = in->n - 1, .in_blocks = f.in / 16, .out_blocks = f.out / 16};
    for (int i = 0; i < s.dims; i++) {
        s.in[i] = in->d[i + 1];
        s.out[i] = out->d[i + 1];
        s.kernel[i] = w->d[i + 2];
        s.stride[i] = d->stride[i];
        s.padding[i] = d->padding[i];
        s.dilation[i] = d->dilation[i] + 1;
    }
    return wgrad_wanted(&s) ? wgrad_new(&s) : NULL;
}

static int weights_make(struct be *b, struct conv_kernel *k, const struct conv_desc *d, struct err *e)
{
    static const int arg[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS};
    static const dnnl_query_t query[] = {dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md, dnnl_query_diff_weights_md};
    const struct node *n = k->base.node;
    k->own = own_find(b, k, d);
    k->base.run = k->own ? own_weights_run : weights_run;
    k->base.sums_in_order = k->own;
    if (k->own) return 0;
    for (int i = 0; i < n->n_param; i++) k->out_bytes[i] = (size_t)shape_count(&b->g->param[n->param[i]].shape) * sizeof(float);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = pd_backward(b, d, true, &pd, e);
    if (status != dnnl_success) return dnnl_fail(e, "convolution backward-weights", status);
    return prim_make(b, &k->p, pd, d->has_bias ? 4 : 3, arg, query, e);
}

static void conv_close(struct be_kernel *base)
{
    struct conv_kernel *k = (struct conv_kernel *)base;
    prim_free(&k->p);
    prim_free(&k->acc);
    wgrad_free(k->own);
}

static int conv_make(struct be *b, struct conv_kernel *k, struct err *e)
{
    struct conv_desc d = {0};
    desc_fill(b, &k->base, &d);
    k->base.close = conv_close;
    if (k->base.phase == PH_FWD ? forward_make(b, k, &d, e) : k->base.phase == PH_BWD_DATA ? data_make(b, k, &d, e) : weights_make(b, k, &d, e))
        return -1;
    size_t out = align64(k->out_bytes[0]) + align64(k->out_bytes[1]);
    if (k->base.phase == PH_BWD_DATA && b->g->tensor[k->base.node->in[0]].n_readers == 1) out = 0;
    size_t need = k->own ? wgrad_work(k->own) : align64(k->p.scratch) + out;
    return kernel_workspace(b, &k->base, need > k->acc.scratch ? need : k->acc.scratch, e);
}

static struct be_kernel *conv_try(struct be *b, const struct be_kernel *key, struct err *e)
{
    struct conv_kernel *k = kernel_new(key, sizeof *k);
    if (conv_make(b, k, e) == 0) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* Blocked weights want blocked tensors. What oneDNN cannot do in these layouts, or only with more workspace than selected, the reference
 * operator does. */
struct be_kernel *dnnl_conv_make(struct be *b, const struct be_kernel *key, struct err *e)
{
    struct weight_form f = weight_form(b, key->node->param[0]);
    struct err mine = {0};
    bool mixed = f.lanes > 1 && !f.in_plain && tensor_lanes(b, key->node->in[0]) == 1;
    struct be_kernel *k = mixed ? dnnl_convert_make(b, key, f.lanes, conv_try, &mine) : conv_try(b, key, &mine);
    return k ? k : dnnl_reference_make(b, key, e);
}
