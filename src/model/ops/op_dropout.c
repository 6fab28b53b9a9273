/* Dropout: each element, or each whole channel, is zero with probability p, else divided by 1 - p; the identity outside
 * training. The mask is a function of (seed, node, step, sample, element or channel) alone (R5), so it is drawn again
 * in backward and is the same for every cut, schedule and micro-batch size. */
#include <string.h>
#include "model/ops/dropout.h"

static const struct attr_kind attrs[] = {{"p", A_REAL, 0.5, 0, 0.999, "probability of zero"},
                                         {"channels", A_BOOL, 0, 0, 1, "draw for whole channels"},
                                         {NULL}};

/* Of `count` draws of a sample, each for `points` neighbouring elements. */
static void apply(const struct op_call *c, const float *x, float *y)
{
    const struct shape *s = &c->g->tensor[c->node->out].shape;
    const int64_t all = shape_count(s), count = dropout_channels(c->node) ? s->d[0] : all, points = all / count;
    const struct dropout d = dropout_of(c->g, c->node, c->block);
    if (!c->train) { memcpy(y, x, (size_t)(c->n * all) * sizeof *y); return; }
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < count; i += 4) {
            float keep[4];
            dropout_factors(&d, c->sample[n], (uint32_t)(i / 4), keep);
            for (int64_t k = 0; k < 4 && i + k < count; k++)
                for (int64_t p = 0; p < points; p++, x++) *y++ = keep[k] == 0 ? 0 : *x * keep[k];
        }
}

static void forward(const struct op_call *c) { apply(c, c->in[0], c->out); }
static void backward_data(const struct op_call *c) { apply(c, c->gout, c->gin[0]); }

static const char *const examples[] = {"9 p=0.5", "16x3x3 p=0.25", "6 p=0", "32x3x3 channels=yes",
                                       "6x2x3x2 channels=yes", "7 p=0.25 channels=yes", NULL};
const struct op_kind op_dropout = {
    .name = "dropout",
    .text = "random zeros in training",
    .keeps_layout = true,
    .draws = true,
    .attr = attrs,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
