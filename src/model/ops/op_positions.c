/* Position embedding: adds a learned vector of all channels to each point. The weight is 1 x points x channels for any
 * number of spatial dimensions. */
#include <string.h>
#include "model/ops/learned.h"

static int positions_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", {3, {1, shape_count(in[0]) / in[0]->d[0], in[0]->d[0]}},
                                       INIT_NORMAL, 0.02};
    return 0;
}

static void positions_forward(const struct op_call *call)
{
    const struct learned d = learned_of(call->g, call->node, call->n);
    const float *x = call->in[0], *w = call->param[0];
    float *y = call->out;
    for (int64_t i = 0; i < d.n * d.c; i++)
        for (int64_t p = 0; p < d.points; p++) *y++ = *x++ + w[p * d.c + i % d.c];
}

static void positions_backward_data(const struct op_call *call)
{
    const struct learned d = learned_of(call->g, call->node, call->n);
    memcpy(call->gin[0], call->gout, (size_t)(d.n * d.c * d.points) * sizeof(float));
}

static const char *const examples[] = {"6x4", "5", "16x3x2", "3x2x2x2", NULL};
const struct op_kind op_positions = {
    .name = "positions",
    .text = "a learned vector is added to each point",
    .infer = positions_infer,
    .forward = positions_forward,
    .backward_data = positions_backward_data,
    .backward_weights = learned_sum,
    .examples = examples,
};
