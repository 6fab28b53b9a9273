/* Stochastic depth (Huang and others 2016), as torchvision.ops.StochasticDepth with mode "row": all of a sample is zero
 * with probability p, else divided by 1 - p; the identity outside training. Which samples is a function of (seed, node,
 * step, sample) alone, as dropout's masks are (R5). */
#include <string.h>
#include "model/ops/stochastic_depth.h"

static const struct attr_kind attrs[] = {{"p", A_REAL, 0.5, 0, 0.999, "probability of zero"}, {NULL}};

static void apply(const struct op_call *c, const float *x, float *y)
{
    size_t count = (size_t)shape_count(&c->g->tensor[c->node->out].shape);
    if (!c->train) { memcpy(y, x, (size_t)c->n * count * sizeof *y); return; }
    const struct depth d = depth_of(c->g, c->node, c->block);
    for (int n = 0; n < c->n; n++) {
        float keep = depth_factor(&d, c->sample[n]);
        for (size_t i = (size_t)n * count; i < (size_t)(n + 1) * count; i++) y[i] = keep == 0 ? 0 : x[i] * keep;
    }
}

static void forward(const struct op_call *c) { apply(c, c->in[0], c->out); }
static void backward_data(const struct op_call *c) { apply(c, c->gout, c->gin[0]); }

static const char *const examples[] = {"9 p=0.5", "16x3x3 p=0.25", "6 p=0", NULL};
const struct op_kind op_stochastic_depth = {
    .name = "stochastic_depth",
    .text = "random samples are zero in training",
    .keeps_layout = true,
    .draws = true,
    .attr = attrs,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
