/* Mean over all spatial dimensions: CxHxW becomes Cx1x1 (AdaptiveAvgPool2d((1, 1))). */
#include "model/op.h"

static int global_avg_pool_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    if (in[0]->n < 2) return err_set(e, E_CONF, "the input has no spatial dimensions");
    for (int i = 1; i < in[0]->n; i++) f->out.d[i] = 1;
    return 0;
}

static void global_avg_pool_forward(const struct op_call *c)
{
    const struct extent d = extent_in(c);
    for (int64_t p = 0; p < d.n * d.c; p++) {
        double sum = 0;
        for (int64_t s = 0; s < d.points; s++) sum += ((const float *)c->in[0])[p * d.points + s];
        ((float *)c->out)[p] = (float)(sum / (double)d.points);
    }
}

static void global_avg_pool_backward_data(const struct op_call *c)
{
    const struct extent d = extent_in(c);
    for (int64_t p = 0; p < d.n * d.c; p++)
        for (int64_t s = 0; s < d.points; s++)
            ((float *)c->gin[0])[p * d.points + s] = (float)(((const float *)c->gout)[p] / (double)d.points);
}

static const char *const examples[] = {"3x4x4", "16x3x3", "2x5", "2x2x3x2", NULL};
const struct op_kind op_global_avg_pool = {
    .name = "global_avg_pool",
    .text = "mean over all of space",
    .keeps_layout = true,
    .infer = global_avg_pool_infer,
    .forward = global_avg_pool_forward,
    .backward_data = global_avg_pool_backward_data,
    .examples = examples,
};
