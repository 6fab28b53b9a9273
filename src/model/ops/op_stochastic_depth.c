/* Stochastic depth (Huang and others 2016), as torchvision.ops.StochasticDepth with mode "row": a whole sample is zero
 * with probability p, else divided by 1 - p; the identity outside training. The choice is a function of (seed, node,
 * step, sample) alone, like dropout's masks (R5). */
#include "model/ops/dropout.h"

static const struct attr_kind attrs[] = {{"p", A_REAL, 0.5, 0, 0.999, "probability of zero"}, {NULL}};

static void stochastic_depth_forward(const struct op_call *c) { dropout_apply(c, 1, c->in[0], c->out); }
static void stochastic_depth_backward_data(const struct op_call *c) { dropout_apply(c, 1, c->gout, c->gin[0]); }

static const char *const examples[] = {"9 p=0.5", "16x3x3 p=0.25", "6 p=0", NULL};
const struct op_kind op_stochastic_depth = {
    .name = "stochastic_depth",
    .text = "random samples are zero in training",
    .keeps_layout = true,
    .draws = true,
    .attr = attrs,
    .forward = stochastic_depth_forward,
    .backward_data = stochastic_depth_backward_data,
    .examples = examples,
};
