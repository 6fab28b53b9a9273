/* Transposed convolution in one to three dimensions, as in torch.nn.ConvTranspose2d: every input value spreads over a
 * window of the output, y[o, i s - p + t d] += x[c, i] w[c, o, t]. It is the input gradient of the convolution with
 * these weights, so it uses that convolution's passes with exchanged roles. Weights are [input channels][output
 * channels of a group][kernel]. */
#include "model/ops/conv.h"

static const struct attr_kind attrs[] = {
    {"channels", A_INT, 0, 1, 1 << 20, "output channels"},
    {"kernel", A_INTS, 1, 1, 1024, "window size"},
    {"stride", A_INTS, 1, 1, 1024, "distance of the windows in the output"},
    {"padding", A_INTS, 0, 0, 1024, "so much is cut off on each side of the output"},
    {"output_padding", A_INTS, 0, 0, 1023, "so much is added at the end of the output: less than the stride"},
    {"dilation", A_INTS, 1, 1, 1024, "distance of kernel elements"},
    {"groups", A_INT, 1, 1, 1 << 20, "channel groups"},
    {"bias", A_BOOL, 1, 0, 1, "add a bias"},
    {NULL},
};

static void conv_transpose_forward(const struct op_call *c)
{
    const struct conv k = conv_of(c);
    conv_data(&k, c->in[0], c->param[0], c->node->n_param > 1 ? c->param[1] : NULL, c->out);
}

static void conv_transpose_backward_data(const struct op_call *c)
{
    const struct conv k = conv_of(c);
    conv_forward(&k, c->gout, c->param[0], NULL, c->gin[0]);
}

static void conv_transpose_backward_weights(const struct op_call *c)
{
    const struct conv k = conv_of(c);
    if (c->pgrad[0]) conv_weights(&k, c->gout, c->in[0], c->pgrad[0]);
    if (c->node->n_param > 1 && c->pgrad[1]) conv_bias(k.n, k.c, window_in_size(&k.w), c->gout, c->pgrad[1]);
}

static const char *const examples[] = {"4x3x3 channels=2 kernel=2 stride=2",
                                       "16x4x5 channels=8 kernel=2 stride=2",
                                       "3x4x4 channels=4 kernel=3 stride=2 padding=1 output_padding=1 bias=no",
                                       "4x5x3 channels=6 kernel=3x2 stride=3x1 padding=1x0 groups=2",
                                       "4x4x4 channels=4 kernel=2 stride=3 output_padding=2 groups=4",
                                       "2x5x5 channels=3 kernel=3 dilation=2 padding=2",
                                       "8x3x3 channels=16 kernel=1",
                                       "2x7 channels=3 kernel=5 stride=3",
                                       "4x3x2x3 channels=2 kernel=2 stride=2 dilation=1x2x1 groups=2",
                                       NULL};

const struct op_kind op_conv_transpose = {
    .name = "conv_transpose",
    .text = "transposed convolution over one to three spatial dimensions",
    .category = OP_CONV_TRANSPOSED,
    .attr = attrs,
    .infer = conv_infer,
    .flops = conv_flops,
    .need_w = 1 << 0,
    .forward = conv_transpose_forward,
    .backward_data = conv_transpose_backward_data,
    .backward_weights = conv_transpose_backward_weights,
    .examples = examples,
};
