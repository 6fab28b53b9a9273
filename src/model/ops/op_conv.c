/* Convolution in one to three dimensions: out[o] = bias + sum over input channels and kernel of weight * in
 * (cross-correlation, as PyTorch). */
#include <math.h>
#include "model/ops/conv.h"

enum { A_CHANNELS, A_KERNEL, A_STRIDE, A_PADDING, A_DILATION, A_GROUPS, A_BIAS };
static const struct attr_kind attrs[] = {
    {"channels", A_INT, 0, 1, 1 << 20, "output channels"},
    {"kernel", A_INTS, 1, 1, 1024, "window size"},
    {"stride", A_INTS, 1, 1, 1024, "step of the window"},
    {"padding", A_INTS, 0, 0, 1024, "zeros on each side"},
    {"dilation", A_INTS, 1, 1, 1024, "distance of kernel elements"},
    {"groups", A_INT, 1, 1, 1 << 20, "channel groups"},
    {"bias", A_BOOL, 1, 0, 1, "add a bias"},
    {NULL},
};

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    int64_t c = in[0]->d[0], o = n->attr[A_CHANNELS].i[0], g = n->attr[A_GROUPS].i[0];
    int ns = in[0]->n - 1;
    if (o < 1) return err_set(e, E_CONF, "channels is missing");
    if (window_make(n, in[0], &w, e)) return -1;
    if (c % g || o % g)
        return err_set(e, E_CONF, "%lld groups do not divide %lld input and %lld output channels", (long long)g,
                       (long long)c, (long long)o);
    window_shape(&w, o, ns, &f->out);
    f->n_param = n->attr[A_BIAS].i[0] ? 2 : 1;
    struct shape ws = {.n = ns + 2, .d = {o, c / g}};
    for (int i = 0; i < ns; i++) ws.d[i + 2] = w.k[3 - ns + i];
    double fan_in = (double)(c / g * window_k_size(&w)), fan_out = (double)(o / g * window_k_size(&w));
    /* Kaiming, fan-out over all groups, gain of ReLU, as torchvision's ResNet */
    f->param[0] = (struct infer_param){"weight", ws, INIT_NORMAL, sqrt(2 / (fan_out * (double)g))};
    f->param[1] = (struct infer_param){"bias", {1, {o}}, INIT_UNIFORM, 1 / sqrt(fan_in)};
    return 0;
}

static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct shape *w = &g->param[n->param[0]].shape, *o = &g->tensor[n->out].shape;
    uint64_t macs = (uint64_t)shape_count(w) * (uint64_t)(shape_count(o) / o->d[0]);
    return 2 * macs;
}

static struct conv of_call(const struct op_call *c)
{
    const struct shape *in = &c->g->tensor[c->node->in[0]].shape, *out = &c->g->tensor[c->node->out].shape;
    struct conv k = {.n = c->n, .c = in->d[0], .o = out->d[0], .groups = c->node->attr[A_GROUPS].i[0]};
    window_make(c->node, in, &k.w, NULL);
    return k;
}

static void forward(const struct op_call *c)
{
    const struct conv k = of_call(c);
    conv_forward(&k, c->in[0], c->param[0], c->node->n_param > 1 ? c->param[1] : NULL, c->out);
}

static void backward_data(const struct op_call *c)
{
    const struct conv k = of_call(c);
    conv_data(&k, c->gout, c->param[0], NULL, c->gin[0]);
}

static void backward_weights(const struct op_call *c)
{
    const struct conv k = of_call(c);
    if (c->pgrad[0]) conv_weights(&k, c->in[0], c->gout, c->pgrad[0]);
    if (c->node->n_param > 1 && c->pgrad[1]) conv_bias(k.n, k.o, window_out_size(&k.w), c->gout, c->pgrad[1]);
}

static const char *const examples[] = {"2x5x5 channels=3 kernel=3",
                                       "3x6x6 channels=4 kernel=3 stride=2 padding=1 bias=no",
                                       "4x5x5 channels=6 kernel=1 bias=no",
                                       "4x5x4 channels=4 kernel=3x2 padding=1x0 groups=2",
                                       "4x6x6 channels=4 kernel=3 padding=2 dilation=2 groups=4",
                                       "2x7 channels=3 kernel=3 stride=2",
                                       "2x4x5x3 channels=3 kernel=3x3x2 padding=1",
                                       "16x6x6 channels=32 kernel=3 padding=1 bias=no",
                                       "32x5x5 channels=16 kernel=1 stride=2 bias=no",
                                       NULL};

const struct op_kind op_conv = {
    .name = "conv",
    .text = "convolution over one to three spatial dimensions",
    .category = OP_CONV,
    .attr = attrs,
    .infer = infer,
    .flops = flops,
    .need_w = 1 << 0,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
    .examples = examples,
};
