/* Convolutions, transposed ones and linear layers of the cuda backend, by dnn.h. A transposed convolution is the input
 * gradient of the convolution with its weights, so that convolution's passes serve it in other roles. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_int.h"
#include "model/ops/window.h"

struct cuda_product {
    struct be_kernel k;
    struct dnn_plan *plan[2];                            /* [acc]: the second for gradients that may be added to */
    size_t padded;                                       /* bytes of the weights' gradient if they are padded; or 0 */
    size_t codes;                                        /* bytes of weights that it widens from codes; or 0 */
    struct k_shape out;                                  /* the tensor that a bias is added to */
    bool bias;
};

/* In bfloat16 a second form of the weights, if there is one. Codes are widened, before the library's workspace. NULL:
 * e. */
static const void *weights_of(struct be *b, const struct cuda_product *p, const struct be_call *c, struct err *e)
{
    const int param = p->k.k->param[0];
    const struct shape *s = &b->g->param[param].shape;
    if (!p->codes) return c->packed ? c->packed : c->param[0];
    const enum ktype type = product_type(b) == DNN_BF16 ? K_BF16 : K_F32;
    const float *factor = format_factors(&b->s->param[param], s, c->param[0]);
    return cuda_check(e, "codes", k_from_codes(b->stream, type, s->d[0], shape_count(s) / s->d[0], c->param[0], factor,
                                               c->work))
               ? NULL
               : c->work;
}

static int product_forward(struct be *b, struct cuda_product *p, const struct be_call *c, struct err *e)
{
    bool fused = p->k.node->op->category == OP_MATRIX;
    const float *bias = p->bias ? c->param[1] : NULL;
    const void *w = weights_of(b, p, c, e);
    const struct dnn_operands o = {c->in[0], w, c->out, (char *)c->work + p->codes, fused ? bias : NULL};
    if (!w || dnn_run(b->dnn, p->plan[0], &o, e)) return -1;
    if (!bias || fused) return 0;
    return cuda_check(e, "bias", k_bias(b->stream, &p->out, bias, c->out));
}

static int data_back(struct be *b, struct cuda_product *p, const struct be_call *c, struct err *e)
{
    struct dnn_plan *plan = p->plan[c->gin_acc & 1];
    if (!c->gin[0]) return 0;
    if (!plan) return err_set(e, E_INTERNAL, "%s: added to the gradient of an input with one reader", p->k.node->name);
    const void *w = weights_of(b, p, c, e);
    const struct dnn_operands o = {c->gout, w, c->gin[0], (char *)c->work + p->codes, NULL};
    return w ? dnn_run(b->dnn, plan, &o, e) : -1;
}

/* The gradient of padded weights goes to workspace, before the library's part. The padding's gradient stays there. */
static int padded_back(struct be *b, struct cuda_product *p, const struct be_call *c, struct err *e)
{
    int in = p->k.k->in[0], ch = channels(b, in);
    int64_t rows = (int64_t)(shape_count(&b->g->param[p->k.k->param[0]].shape) / ch);
    const struct k_slice used = {.type = K_F32, .rows = rows, .width = stored(b, in), .c = ch};
    const struct k_grad g = {c->work, c->pgrad[0], c->pgrad_acc};
    const struct dnn_operands o = {c->in[0], c->gout, c->work, (char *)c->work + p->padded, NULL};
    if (dnn_run(b->dnn, p->plan[0], &o, e)) return -1;
    return cuda_check(e, "weight gradient", k_concat_back(b->stream, &used, &g));
}

static int weights_back(struct be *b, struct cuda_product *p, const struct be_call *c, struct err *e)
{
    struct dnn_plan *plan = p->plan[c->pgrad_acc && !p->padded];
    if (c->pgrad[0] && p->padded && padded_back(b, p, c, e)) return -1;
    const bool turned = p->k.node->op->category == OP_CONV_TRANSPOSED;
    const void *x = turned ? c->gout : c->in[0], *gy = turned ? c->in[0] : c->gout;
    const struct dnn_operands o = {x, gy, c->pgrad[0], c->work, NULL};
    if (c->pgrad[0] && !p->padded && dnn_run(b->dnn, plan, &o, e)) return -1;
    if (!p->bias || !c->pgrad[1]) return 0;
    return cuda_check(e, "bias gradient",
                      k_bias_back(b->stream, &p->out, c->gout, c->pgrad[1], c->pgrad_acc, c->work));
}

static int product_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct cuda_product *p = (struct cuda_product *)k;
    return k->key.phase == PH_FWD        ? product_forward(b, p, c, e)
           : k->key.phase == PH_BWD_DATA ? data_back(b, p, c, e)
                                     : weights_back(b, p, c, e);
}

static struct cuda_product *product_new(struct be *b, const struct be_kernel *like)
{
    struct cuda_product *p = cuda_kernel_new(like, sizeof *p);
    p->k.run = product_run;
    p->bias = like->node->n_param > 1;
    p->out = shape_of(b, like->k->out, like->key.samples);
    const int in = like->k->in[0], param = like->k->param[0];
    if (b->s->param[param].type == I8) p->codes = size_align64(graph_param_bytes(b->g, param));
    if (like->key.phase == PH_BWD_WEIGHTS && padded(b, in)) {
        size_t n = (size_t)shape_count(&b->g->param[like->k->param[0]].shape) * sizeof(float);
        p->padded = (n / (size_t)channels(b, in) * (size_t)stored(b, in) + 63) / 64 * 64;
    }
    return p;
}

static enum dnn_pass pass_of(const struct node *n, enum phase ph)
{
    static const enum dnn_pass pass[PH_COUNT] = {
        [PH_FWD] = DNN_FORWARD, [PH_BWD_DATA] = DNN_DATA, [PH_BWD_WEIGHTS] = DNN_WEIGHTS},
        turned[PH_COUNT] = {
        [PH_FWD] = DNN_DATA, [PH_BWD_DATA] = DNN_FORWARD, [PH_BWD_WEIGHTS] = DNN_WEIGHTS};
    return (n->op->category == OP_CONV_TRANSPOSED ? turned : pass)[ph];
}

/* Does this pass ever add to an old gradient? The second micro-batch adds to weights' gradients; all readers of an
 * input but the last add to its gradient. */
static bool added(const struct be *b, const struct group *k, enum phase ph)
{
    return ph == PH_BWD_WEIGHTS || (ph == PH_BWD_DATA && b->g->tensor[k->in[0]].n_readers > 1);
}

/* Plans of one pass: if gradients are added, one plan overwrites and another adds. conv or linear is NULL. */
static struct be_kernel *plans_make(struct be *b, struct cuda_product *p, const struct dnn_conv *conv,
                                    const struct dnn_linear *linear, struct err *e)
{
    size_t space = p->k.k->library_bytes;
    bool weights = p->k.key.phase == PH_BWD_WEIGHTS;
    if (cuda_kernel_workspace(b, &p->k, p->padded + p->codes + space, e) ||
        (weights && p->bias && cuda_kernel_workspace(b, &p->k, k_bias_work(&p->out), e)))
        goto fail;
    for (int acc = 0; acc <= (added(b, p->k.k, p->k.key.phase) && !p->padded); acc++) {
        const struct dnn_ask ask = {pass_of(p->k.node, p->k.key.phase), acc, space};
        if (conv ? dnn_conv_plan(b->dnn, conv, &ask, &p->plan[acc], e)
                 : dnn_linear_plan(b->dnn, linear, &ask, &p->plan[acc], e))
            goto fail;
    }
    return &p->k;
fail:
    free(p);
    return NULL;
}

static int conv_of(const struct be *b, const struct node *n, int samples, struct dnn_conv *c, struct err *e)
{
    const struct shape *in = &b->g->tensor[n->in[0]].shape;
    struct window w;
    const bool turned = n->op->category == OP_CONV_TRANSPOSED;
    const int from = stored(b, n->in[0]), to = channels(b, n->out);
    if (window_of_product(n, in, &w, e)) return -1;
    *c = (struct dnn_conv){.type = product_type(b), .n = samples, .c_in = turned ? to : from,
                           .c_out = turned ? from : to, .groups = (int)n->attr[op_attr(n->op, "groups")].i[0]};
    for (int i = 0; i < 3; i++) {
        c->in[i] = (int)w.in[i]; c->out[i] = (int)w.out[i]; c->kernel[i] = (int)w.k[i];
        c->stride[i] = (int)w.s[i]; c->pad[i] = (int)w.p[i]; c->dilation[i] = (int)w.d[i];
    }
    return 0;
}

static struct be_kernel *conv_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct dnn_conv c;
    return conv_of(b, like->node, like->key.samples, &c, e) ? NULL : plans_make(b, product_new(b, like), &c, NULL, e);
}

int cuda_product_tune(struct be *b, const struct be_key *key, struct text *table, struct err *e)
{
    const struct group *k = &b->s->group[key->group];
    enum phase ph = key->phase;
    const struct node *n = &b->g->node[k->node[0]];
    struct dnn_conv c;
    bool wanted = ph == PH_FWD || (ph == PH_BWD_DATA ? k->grad_in & 1 : k->pgrad_in_w & 1);
    if (!op_has_windows(n->op) || !wanted) return 0;
    if (conv_of(b, n, key->samples, &c, e)) return -1;
    const struct device *d = &b->s->dev;
    unsigned tries = (d->try_compiled ? DNN_TRY_COMPILED : 0u) | (d->try_all ? DNN_TRY_ALL : 0u);
    for (int acc = 0; acc <= (added(b, k, ph) && !padded(b, k->in[0])); acc++) {
        const struct dnn_ask ask = {pass_of(n, ph), acc, k->library_bytes};
        if (dnn_measure(b->dnn, &c, &ask, tries, table, e)) return err_where(e, "%s", n->name);
    }
    return 0;
}

static struct be_kernel *linear_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    /* one for each sample, or for each of its points */
    int64_t rows = like->key.samples * points(b, like->node->out);
    if (rows > INT32_MAX) return err_set(e, E_CONF, "%s: more than 2^31 points", like->node->name), NULL;
    struct dnn_linear l = {.type = product_type(b),
                           .n = (int)rows,
                           .in = channels(b, like->node->in[0]),
                           .out = channels(b, like->node->out),
                           .bias = like->node->n_param > 1};
    return plans_make(b, product_new(b, like), NULL, &l, e);
}

static enum layout conv_param_layout(const struct selection *s, const struct node *n, int slot)
{
    return slot ? LAYOUT_NONE : LAYOUT_LAST;
}

const struct kernel_row cuda_rows_product[] = {
    {.name = "cuDNN", .pattern = PATTERN_OP("conv"), .types = CUDA_TYPES, .param_layout = conv_param_layout,
     .make = conv_make},
    {.name = "cuDNN", .pattern = PATTERN_OP("conv_transpose"), .types = CUDA_TYPES, .param_layout = conv_param_layout,
     .make = conv_make},
    {.name = "cuBLASLt", .pattern = PATTERN_OP("linear"), .types = CUDA_TYPES, .make = linear_make},
    {0}};
