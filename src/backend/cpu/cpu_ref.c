/* Any group of one operator by its reference kernel, or a convolution by a matrix product. Blocked tensors are copied
 * to plain ones. */
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_product.h"

struct plain_kernel {
    struct be_kernel base;
    struct product *product;                             /* NULL: the operator's reference kernel */
};

/* dst = or += src (plain), in the parameter's layout. */
static void param_result(const struct be *b, int param, float *dst, const float *src, bool acc)
{
    struct weight_form f = weight_form(b, param);
    if (f.lanes > 1) weight_to_blocked(dst, src, &f, acc);
    else if (acc) b->vec->add(dst, src, (size_t)(f.out * f.in * f.points));
}

static const void *in_plain(struct be *b, const struct be_kernel *k, int tensor, const void *p, struct carve *w)
{
    if (tensor_lanes(b, tensor) == 1 || (!p && w->at)) return p;
    float *copy = carve(w, tensor_bytes(b, tensor, k->key.samples));
    if (w->at) to_plain(copy, p, tensor_blocks(b, tensor, k->key.samples), false);
    return copy;
}

/* The values that the kernel reads; gradients of weights read no parameters. With w->at == NULL it counts as if every
 * pointer were given. */
static void inputs_fill(struct be *b, const struct be_kernel *k, const struct be_call *c, struct op_call *o,
                        struct carve *w)
{
    for (int i = 0; i < k->node->n_in; i++) o->in[i] = in_plain(b, k, k->node->in[i], c->in[i], w);
    for (int i = 0; i < k->node->n_param; i++) {
        o->param[i] = c->param[i];
        struct weight_form f = weight_form(b, k->node->param[i]);
        if (f.lanes == 1 || k->key.phase == PH_BWD_WEIGHTS) continue;
        o->param[i] = carve(w, graph_param_bytes(b->g, k->node->param[i]));
        if (w->at) weight_to_plain(o->param[i], c->param[i], &f);
    }
}

/* Where the kernel writes: directly to the result, or to a copy that results_store moves there. */
static void outputs_fill(struct be *b, const struct be_kernel *k, const struct be_call *c, struct op_call *o,
                         struct carve *w)
{
    bool count = !w->at;
    const struct node *n = k->node;
    for (int i = 0; i < n->n_out; i++) {
        const int t = n->outs[i];
        if (k->key.phase != PH_FWD) o->outs[i] = (void *)in_plain(b, k, t, c->outs[i], w);
        else o->outs[i] = tensor_lanes(b, t) > 1 ? carve(w, tensor_bytes(b, t, k->key.samples)) : c->outs[i];
        o->gouts[i] = in_plain(b, k, t, c->gouts[i], w);
    }
    for (int i = 0; i < n->n_in && k->key.phase == PH_BWD_DATA; i++) {
        bool direct = tensor_lanes(b, n->in[i]) == 1 && !(c->gin_acc >> i & 1);
        o->gin[i] = (c->gin[i] || count) && !direct ? carve(w, tensor_bytes(b, n->in[i], k->key.samples)) : c->gin[i];
    }
    uint32_t written = k->key.phase == PH_BWD_DATA ? n->op->pgrad_in_b : op_pgrad_in_w(n->op);
    for (int i = 0; i < n->n_param && k->key.phase != PH_FWD; i++) {
        bool direct = weight_form(b, n->param[i]).lanes == 1 && !c->pgrad_acc;
        bool there = count ? written >> i & 1 : c->pgrad[i] != NULL;
        o->pgrad[i] = there && !direct ? carve(w, graph_param_bytes(b->g, n->param[i])) : c->pgrad[i];
    }
}

static void results_store(struct be *b, const struct be_kernel *k, const struct be_call *c, const struct op_call *o)
{
    const struct node *n = k->node;
    for (int i = 0; k->key.phase == PH_FWD && i < n->n_out; i++)
        if (o->outs[i] != c->outs[i])
            to_blocked(c->outs[i], o->outs[i], tensor_blocks(b, n->outs[i], k->key.samples), false);
    for (int i = 0; i < n->n_in; i++)
        if (c->gin[i] && o->gin[i] != c->gin[i])
            to_blocked(c->gin[i], o->gin[i], tensor_blocks(b, n->in[i], k->key.samples), c->gin_acc >> i & 1);
    for (int i = 0; i < n->n_param; i++)
        if (c->pgrad[i] && o->pgrad[i] != c->pgrad[i])
            param_result(b, n->param[i], c->pgrad[i], o->pgrad[i], c->pgrad_acc);
}

static struct op_call call_begin(const struct be *b, const struct be_kernel *k, const struct be_call *c)
{
    return (struct op_call){.g = b->g,
                            .node = k->node,
                            .n = k->key.samples,
                            .train = k->key.train,
                            .block = c->block,
                            .sample = c->sample,
                            .saved = c->saved};
}

static int plain_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct product *product = ((struct plain_kernel *)k)->product;
    struct op_call o = call_begin(b, k, c);
    struct carve w = {c->work, 0};
    inputs_fill(b, k, c, &o, &w);
    outputs_fill(b, k, c, &o, &w);
    if (product && product_run(product, &o, carve(&w, product_work(product)), e)) return -1;
    if (!product) host_pass(k->node->op, k->key.phase)(&o);
    results_store(b, k, c, &o);
    return 0;
}

/* Bytes of workspace in the worst case: every pointer given, and every result added that can be. */
static size_t copies_bytes(struct be *b, const struct be_kernel *k)
{
    struct op_call o = {0};
    struct be_call c = {.pgrad_acc = true};
    struct carve w = {NULL, 0};
    for (int i = 0; i < k->node->n_in; i++)
        if (b->g->tensor[k->node->in[i]].n_readers > 1 && b->g->tensor[k->node->in[i]].type == F32)
            c.gin_acc |= (uint8_t)(1u << i);
    inputs_fill(b, k, &c, &o, &w);
    outputs_fill(b, k, &c, &o, &w);
    return w.used;
}

static void plain_close(struct be_kernel *k) { product_free(((struct plain_kernel *)k)->product); }

static struct be_kernel *plain_make(struct be *b, const struct be_kernel *like, struct product *product, struct err *e)
{
    struct plain_kernel *k = kernel_new(like, sizeof *k);
    k->product = product;
    k->base.run = plain_run;
    k->base.close = plain_close;
    if (!kernel_workspace(b, like, copies_bytes(b, like) + (product ? product_work(product) : 0), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static struct be_kernel *reference_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return plain_make(b, like, NULL, e);
}

static struct be_kernel *product_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct op_call shape = call_begin(b, like, &(struct be_call){0});
    return plain_make(b, like, product_new(&shape, like->key.phase), e);
}

static size_t conv_workspace(const struct selection *s, const struct group *k) { return CPU_CONV_WORK; }

/* Losses and scores cost almost nothing. Random numbers cost the same in any loop, about 10 ns an element. */
static const char *cheap_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct op_kind *op = group_node(s, k)->op;
    return op->rows || op->draws ? NULL : "";
}

/* Loops of operators that are vector code or copies of rows; then what replaces a kernel that there is not. Reference
 * kernels are plain loops, written for readers. */
const struct kernel_row cpu_rows_ref[] = {
    {.name = "own loops", .pattern = PATTERN_OP("softmax"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "own loops", .pattern = PATTERN_OP("layer_norm"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "own loops", .pattern = PATTERN_OP("split"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "own loops", .pattern = PATTERN_OP("slice"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "own loops", .pattern = PATTERN_OP("prepend"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "own loops", .pattern = PATTERN_OP("positions"), .layouts = ROW_ANY_LAYOUT, .make = reference_make},
    {.name = "product", .pattern = PATTERN_OP("conv_transpose"), .layouts = ROW_ANY_LAYOUT,
     .workspace = conv_workspace, .make = product_make},
    {.name = "product", .pattern = PATTERN_OP("conv"), .layouts = ROW_ANY_LAYOUT, .cost = 35,
     .refuses = cpu_single_channels_refuse, .workspace = conv_workspace, .fallback = "matrix products",
     .make = product_make},
    {.name = "product", .pattern = PATTERN_OP("conv"), .layouts = ROW_ANY_LAYOUT, .cost = 40,
     .refuses = cpu_several_channels_refuse, .workspace = conv_workspace, .fallback = "products of single channels",
     .slow = true, .make = product_make},
    {.name = "reference", .pattern = PATTERN_ANY, .layouts = ROW_ANY_LAYOUT, .cost = 50, .refuses = cheap_refuses,
     .fallback = "a plain loop", .why = "cheap beside the rest", .make = reference_make},
    {.name = "reference", .pattern = PATTERN_ANY, .layouts = ROW_ANY_LAYOUT, .cost = 100,
     .fallback = "a plain loop", .why = "no kernel for CPUs yet", .slow = true, .make = reference_make},
    {0}};
