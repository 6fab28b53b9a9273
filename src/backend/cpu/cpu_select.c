/* What the onednn backend selects: channels in blocks of the instruction set, weights in the layout of their
 * outputs. */
#include "backend/cpu/cpu_int.h"
#include "backend/rules.h"

/* A convolution works on blocks of channels if these divide its outputs and each output reads all inputs; or, over
 * planes, if each output reads only its own input (depthwise). */
static bool conv_blocks(const struct selection *s, const struct node *n)
{
    const struct shape *in = &s->g->tensor[n->in[0]].shape, *out = &s->g->tensor[n->out].shape;
    int64_t groups = n->attr[op_attr(n->op, "groups")].i[0];
    return out->d[0] % s->dev.block == 0 && (groups == 1 || (groups == in->d[0] && groups == out->d[0] && in->n == 3));
}

/* A tensor with one point a channel, next to a tensor with more points, is the same in every layout. */
static bool lies_anyhow(const struct selection *s, const struct node *n, int i)
{
    const struct shape *x = &s->g->tensor[n->in[i]].shape;
    return shape_count(x) == x->d[0] && shape_count(&s->g->tensor[n->in[0]].shape) > x->d[0];
}

static enum layout layout_of(const struct selection *s, int tensor)
{
    int producer = s->g->tensor[tensor].producer;
    if (s->dev.block <= 1 || producer < 0) return LAYOUT_PLAIN;
    const struct node *n = &s->g->node[producer];
    enum layout blocked = s->dev.block == 16 ? LAYOUT_BLK16 : LAYOUT_BLK8;
    if (n->op->category == OP_CONV) return conv_blocks(s, n) ? blocked : LAYOUT_PLAIN;
    /* its kernel takes blocks or makes plain copies anyway, and a convolution reads it */
    if (n->op->category == OP_CONV_TRANSPOSED)
        return s->g->tensor[n->out].shape.d[0] % s->dev.block ? LAYOUT_PLAIN : blocked;
    if (n->op->category == OP_REPEAT && s->g->tensor[n->out].shape.d[0] % s->dev.block == 0) return blocked;
    if (!n->op->keeps_layout) return LAYOUT_PLAIN;
    for (int i = 1; i < n->n_in; i++)
        if (s->layout[n->in[i]] != s->layout[n->in[0]] && !lies_anyhow(s, n, i)) return LAYOUT_PLAIN;
    return s->layout[n->in[0]];
}

static enum layout param_layout_of(const struct selection *s, int node, int slot)
{
    const struct node *n = &s->g->node[node];
    if (slot) return LAYOUT_PLAIN;
    return n->op->category == OP_CONV || cpu_conv_patch(s, n) ? s->layout[n->out] : LAYOUT_PLAIN;
}

/* The library's convolutions need at most 2 MiB of scratchpad (measured at batch 20), their substitutes at most 4 MiB
 * (product_work). Transposed weights are for input gradients. */
static void sizes(const struct selection *s, struct group *k)
{
    enum { CONV_WORK = (4 << 20) + 4096, WORK = 4096 };
    const double WINO_COST = 1.25;                       /* cost of its transforms: measured, 16 to 128 channels */
    const struct op_kind *op = s->g->node[k->node[0]].op;
    const bool conv = op->category == OP_CONV;
    const int64_t points = shape_points(&s->g->tensor[k->out].shape);
    const size_t scores = op->category == OP_ATTENTION ? cpu_attention_work(points) : 0;
    struct wino_shape w;
    host_sizes(s, k, op_has_windows(op) ? CONV_WORK : WORK + scores);
    if (cpu_conv_wino(s, &s->g->node[k->node[0]], s->max_samples, &w)) {
        if (cpu_conv_wino_work(&w) > CONV_WORK) host_sizes(s, k, cpu_conv_wino_work(&w));
        k->packed_bytes = cpu_conv_wino_packed(&w, k->grad_in & 1);
        k->share = WINO_COST * wino_share(&w);
        return;
    }
    if (op->category == OP_CONV_TRANSPOSED && cpu_conv_patch(s, &s->g->node[k->node[0]]))
        k->packed_bytes = size_align64(graph_param_bytes(s->g, k->param[0]));
    if (!conv || !(k->grad_in & 1) || s->param_layout[k->param[0]] == LAYOUT_PLAIN) return;
    if (s->g->param[k->param[0]].shape.d[1] % s->dev.block == 0)
        k->packed_bytes = size_align64(graph_param_bytes(s->g, k->param[0]));
}

const struct select_rules onednn_rules = {.hardware = "cpu",
                                          .layout = layout_of,
                                          .param_layout = param_layout_of,
                                          .sizes = sizes,
                                          .fallbacks = cpu_fallbacks};

/* One core of a current server. */
const struct device_speed onednn_avx512_speed = {
    .flops = {[FP32] = 110}, .near = 16, .mid = 11, .far = 7, .load = 7, .threads = 0.8, HOST_SPEED};
const struct device_speed onednn_avx2_speed = {
    .flops = {[FP32] = 65}, .near = 13, .mid = 10, .far = 8, .load = 8, .threads = 0.8, HOST_SPEED};
