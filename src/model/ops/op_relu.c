/* ReLU: y = max(x, 0). A NaN stays visible, also in backward: the gradient is zero where y <= 0 and passes elsewhere.
 * Only the output is saved. */
#include "model/op.h"

static void relu_forward(const struct op_call *c)
{
    const float *x = c->in[0];
    float *y = c->out;
    for (int64_t i = 0, n = op_count(c); i < n; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

static void relu_backward_data(const struct op_call *c)
{
    const float *gy = c->gout, *y = c->out;
    float *gx = c->gin[0];
    for (int64_t i = 0, n = op_count(c); i < n; i++) gx[i] = y[i] <= 0 ? 0 : gy[i];
}

static const char *const examples[] = {"7", "16x3x3", "3x5", NULL};
const struct op_kind op_relu = {
    .name = "relu",
    .text = "max(x, 0)",
    .category = OP_RELU,
    .keeps_layout = true,
    .need_b = NEED_OUT,
    .forward = relu_forward,
    .backward_data = relu_backward_data,
    .examples = examples,
};
