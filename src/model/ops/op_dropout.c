/* Dropout: each element is zero with probability p, else divided by 1 - p; the identity outside training. The mask is a
 * function of (seed, node, step, sample, element) alone (R5), so it is drawn again in backward and is the same for
 * every cut, schedule and micro-batch size. */
#include <string.h>
#include "base/rng.h"
#include "model/op.h"

static const struct attr_kind attrs[] = {{"p", A_REAL, 0.5, 0, 0.999, "probability of zero"}, {NULL}};

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->out = *in[0];
    return 0;
}

static void apply(const struct op_call *c, const float *x, float *y)
{
    int64_t count = shape_count(&c->g->tensor[c->node->out].shape);
    double p = c->node->attr[0].r;
    float keep = (float)(1 / (1 - p));
    uint32_t limit = (uint32_t)(p * 0x1p32), layer = (uint32_t)(c->node - c->g->node);
    if (!c->train) { memcpy(y, x, (size_t)(c->n * count) * sizeof *y); return; }
    struct rng_at at = {c->block->seed, RNG_DROPOUT, layer, (uint32_t)c->block->step};
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < count; i += 4) {
            uint32_t w[4];
            at.c = (uint32_t)c->sample[n];
            rng_words(at, (uint32_t)(i / 4), w);
            for (int64_t k = 0; k < 4 && i + k < count; k++)
                y[n * count + i + k] = w[k] < limit ? 0 : x[n * count + i + k] * keep;
        }
}

static void forward(const struct op_call *c) { apply(c, c->in[0], c->out); }
static void backward_data(const struct op_call *c) { apply(c, c->gout, c->gin[0]); }

static const char *const examples[] = {"9 p=0.5", "16x3x3 p=0.25", "6 p=0", NULL};
const struct op_kind op_dropout = {
    .name = "dropout",
    .text = "random zeros in training",
    .keeps_layout = true,
    .draws = true,
    .min_in = 1,
    .max_in = 1,
    .attr = attrs,
    .infer = infer,
    .grad_in = 1,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
