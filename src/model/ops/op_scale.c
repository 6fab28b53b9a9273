/* Multiplies each channel by its own weight: y = weight x. ConvNeXt's layer scale; the weight has the input's
 * dimensions with one point, C x 1 x 1, as in torchvision. */
#include "model/op.h"

enum { A_VALUE };
static const struct attr_kind attrs[] = {{"value", A_REAL, 1, 0, 1e6, "initial weights"}, {NULL}};

static int scale_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", *in[0], INIT_CONSTANT, n->attr[A_VALUE].r};
    for (int i = 1; i < in[0]->n; i++) f->param[0].shape.d[i] = 1;
    return 0;
}

static void scale_apply(const struct op_call *c, const float *x, float *y)
{
    const struct extent d = extent_out(c);
    const float *w = c->param[0];
    for (int64_t i = 0; i < d.n * d.c; i++)
        for (int64_t p = 0; p < d.points; p++) *y++ = *x++ * w[i % d.c];
}

static void scale_forward(const struct op_call *c) { scale_apply(c, c->in[0], c->out); }
static void scale_backward_data(const struct op_call *c) { scale_apply(c, c->gout, c->gin[0]); }

static void scale_backward_weights(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const float *x = c->in[0], *gy = c->gout;
    for (int64_t ch = 0; ch < d.c; ch++) {
        double sum = 0;
        CHANNEL_EACH(d, ch, at) sum += (double)gy[at] * x[at];
        ((float *)c->pgrad[0])[ch] = (float)sum;
    }
}

static const char *const examples[] = {"6", "16x3x3", "5x4x2 value=0.5", "3x2x3x2", NULL};
const struct op_kind op_scale = {
    .name = "scale",
    .text = "each channel times a weight",
    .keeps_layout = true,
    .attr = attrs,
    .infer = scale_infer,
    .need_w = 1,
    .forward = scale_forward,
    .backward_data = scale_backward_data,
    .backward_weights = scale_backward_weights,
    .examples = examples,
};
