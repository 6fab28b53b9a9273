/* Dropout: each element, or each whole channel, is zero with probability p, else divided by 1 - p; the identity outside
 * training. The mask is a function of (seed, node, step, sample, element or channel) alone (R5). So backward draws it
 * again, and it is the same for every cut, schedule and micro-batch size. */
#include "model/ops/dropout.h"

static const struct attr_kind attrs[] = {{"p", A_REAL, 0.5, 0, 0.999, "probability of zero"},
                                         {"channels", A_BOOL, 0, 0, 1, "draw for whole channels"},
                                         {NULL}};

static int64_t draws(const struct op_call *c)
{
    const struct shape *s = &c->g->tensor[c->node->out].shape;
    return dropout_channels(c->node) ? s->d[0] : shape_count(s);
}

static void dropout_forward(const struct op_call *c) { dropout_apply(c, draws(c), c->in[0], c->out); }
static void dropout_backward_data(const struct op_call *c) { dropout_apply(c, draws(c), c->gout, c->gin[0]); }

static const char *const examples[] = {"9 p=0.5", "16x3x3 p=0.25", "6 p=0", "32x3x3 channels=yes",
                                       "6x2x3x2 channels=yes", "7 p=0.25 channels=yes", NULL};
const struct op_kind op_dropout = {
    .name = "dropout",
    .text = "random zeros in training",
    .keeps_layout = true,
    .draws = true,
    .attr = attrs,
    .forward = dropout_forward,
    .backward_data = dropout_backward_data,
    .examples = examples,
};
