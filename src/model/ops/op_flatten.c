/* One dimension a sample, row-major. */
#include <string.h>
#include "model/op.h"

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->out = (struct shape){1, {shape_count(in[0])}};
    return 0;
}

static size_t bytes(const struct op_call *c)
{
    return (size_t)c->n * (size_t)shape_count(&c->g->tensor[c->node->out].shape) * sizeof(float);
}
static void forward(const struct op_call *c) { memcpy(c->out, c->in[0], bytes(c)); }
static void backward_data(const struct op_call *c) { memcpy(c->gin[0], c->gout, bytes(c)); }

static const char *const examples[] = {"3x4x4", "16x2x2", "16x1x1", "5", NULL};
const struct op_kind op_flatten = {
    .name = "flatten",
    .text = "one dimension a sample",
    .min_in = 1,
    .max_in = 1,
    .infer = infer,
    .grad_in = 1,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
