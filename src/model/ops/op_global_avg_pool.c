/* Mean over all of space: CxHxW becomes Cx1x1 (AdaptiveAvgPool2d((1, 1))). */
#include "model/op.h"

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    if (in[0]->n < 2) return err_set(e, E_CONF, "the input has no spatial dimensions");
    for (int i = 1; i < in[0]->n; i++) f->out.d[i] = 1;
    return 0;
}

struct global_pool_dims { int64_t planes, s; };
static struct global_pool_dims dims_of(const struct op_call *c)
{
    const struct shape *in = &c->g->tensor[c->node->in[0]].shape;
    return (struct global_pool_dims){c->n * in->d[0], shape_count(in) / in->d[0]};
}

static void forward(const struct op_call *c)
{
    struct global_pool_dims d = dims_of(c);
    for (int64_t p = 0; p < d.planes; p++) {
        double sum = 0;
        for (int64_t s = 0; s < d.s; s++) sum += ((const float *)c->in[0])[p * d.s + s];
        ((float *)c->out)[p] = (float)(sum / (double)d.s);
    }
}

static void backward_data(const struct op_call *c)
{
    struct global_pool_dims d = dims_of(c);
    for (int64_t p = 0; p < d.planes; p++)
        for (int64_t s = 0; s < d.s; s++)
            ((float *)c->gin[0])[p * d.s + s] = (float)(((const float *)c->gout)[p] / (double)d.s);
}

static const char *const examples[] = {"3x4x4", "16x3x3", "2x5", "2x2x3x2", NULL};
const struct op_kind op_global_avg_pool = {
    .name = "global_avg_pool",
    .text = "mean over all of space",
    .keeps_layout = true,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
