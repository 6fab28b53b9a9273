/* A score: mean absolute error of one sample, the mean over its elements of |x - t|. */
#include <math.h>
#include "model/ops/loss.h"

static int mean_absolute_error_infer(const struct node *n, const struct shape *const *in, struct infer *f,
                                     struct err *e)
{
    if (loss_infer(n, in, f, e)) return -1;
    f->out.d[0] = 1;
    return 0;
}

static void mean_absolute_error_forward(const struct op_call *c)
{
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double sum = 0;
        for (int64_t i = 0; i < t.count; i++) sum += fabs(x[i] - loss_target_at(&t, n, i));
        ((double *)c->out)[n] = sum / (double)t.count;
    }
}

static const struct score_row rows[] = {{"mae", 0, -1}, {0}};
static const char *const examples[] = {"5 + class", "7 + vector", "2x3 + vector", NULL};
const struct op_kind op_mean_absolute_error = {
    .name = "mean_absolute_error",
    .text = "score: mean absolute difference from the target",
    .n_in = 2,
    .takes = {TAKES(F32), TAKES(F32) | TAKES(I64)},
    .range = loss_range,
    .infer = mean_absolute_error_infer,
    .rows = rows,
    .forward = mean_absolute_error_forward,
    .examples = examples,
};
