/* Convolution in one to three dimensions: out[o] = bias + sum over input channels and kernel of weight * in
 * (cross-correlation, as PyTorch). */
#include <math.h>
#include "model/ops/conv.h"

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
    const struct shape *w = &f->param[0].shape;
    if (conv_infer(n, in, f, e)) return -1;
    /* Kaiming, fan-out over all groups, ReLU gain, as in torchvision's ResNet */
    f->param[0].init = INIT_NORMAL;
    f->param[0].scale = sqrt(2 / (double)(shape_count(w) / w->d[1]));
    return 0;
}

static void forward(const struct op_call *c)
{
    const struct conv k = conv_of(c);
    conv_forward(&k, c->in[0], c->param[0], c->node->n_param > 1 ? c->param[1] : NULL, c->out);
}

static void conv_backward_data(const struct op_call *c)
{
    const struct conv k = conv_of(c);
    conv_data(&k, c->gout, c->param[0], NULL, c->gin[0]);
}

static void conv_backward_weights(const struct op_call *c)
{
    const struct conv k = conv_of(c);
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
    .flops = conv_flops,
    .need_w = 1 << 0,
    .forward = forward,
    .backward_data = conv_backward_data,
    .backward_weights = conv_backward_weights,
    .examples = examples,
};
