/* Leaky ReLU with a learned slope below zero (He and others 2015): y = x above zero, else a x, with a slope per channel
 * or one for all, as in torch.nn.PReLU. The slope may become zero or negative, so backward reads the input: the output
 * does not show the input's sign. At zero the derivative is the slope, as in torch. */
#include "model/ops/prelu.h"

enum { A_VALUE, A_SHARED };
static const struct attr_kind attrs[] = {
    {"value", A_REAL, 0.25, -1e3, 1e3, "initial slope"},
    {"shared", A_BOOL, 0, 0, 1, "one slope for all channels"},
    {NULL},
};

static int prelu_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", {1, {n->attr[A_SHARED].i[0] ? 1 : in[0]->d[0]}}, INIT_CONSTANT,
                                       n->attr[A_VALUE].r};
    return 0;
}

static void prelu_forward(const struct op_call *c)
{
    const struct prelu p = prelu_of(c->g, c->node);
    const float *x = c->in[0], *a = c->param[0];
    float *y = c->out;
    for (int64_t i = 0; i < c->n * p.c; i++)
        for (int64_t s = 0; s < p.points; s++, x++) *y++ = *x > 0 ? *x : a[p.shared ? 0 : i % p.c] * *x;
}

static void prelu_backward_data(const struct op_call *c)
{
    const struct prelu p = prelu_of(c->g, c->node);
    const float *x = c->in[0], *a = c->param[0], *gy = c->gout;
    float *gx = c->gin[0];
    for (int64_t i = 0; i < c->n * p.c; i++)
        for (int64_t s = 0; s < p.points; s++, gy++) *gx++ = *x++ > 0 ? *gy : a[p.shared ? 0 : i % p.c] * *gy;
}

static void prelu_backward_weights(const struct op_call *c)
{
    const struct extent d = extent_out(c);
    const bool shared = prelu_of(c->g, c->node).shared;
    const float *x = c->in[0], *gy = c->gout;
    double all = 0;
    for (int64_t ch = 0; ch < d.c; ch++) {
        double sum = 0;
        CHANNEL_EACH(d, ch, at) sum += x[at] > 0 ? 0 : (double)gy[at] * x[at];
        all += sum;
        if (!shared) ((float *)c->pgrad[0])[ch] = (float)sum;
    }
    if (shared) *(float *)c->pgrad[0] = (float)all;
}

static const char *const examples[] = {"6", "16x3x3 value=-0.5", "5x4x2 shared=yes", "3x2x3x2", "32x5", NULL};
const struct op_kind op_prelu = {
    .name = "prelu",
    .text = "x above zero, a learned slope times x below",
    .keeps_layout = true,
    .attr = attrs,
    .infer = prelu_infer,
    .need_b = 1,
    .need_w = 1,
    .forward = prelu_forward,
    .backward_data = prelu_backward_data,
    .backward_weights = prelu_backward_weights,
    .examples = examples,
};
