/* Mean squared error of one sample: mean over its elements of (x - t)^2. The gradient of the batch mean is 2 (x - t) /
 * (elements N). */
#include "model/ops/loss.h"

static void mse_forward(const struct op_call *c)
{
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double sum = 0, *out = (double *)c->out + LOSS_COLUMNS * n;
        for (int64_t i = 0; i < t.count; i++) {
            double d = x[i] - loss_target_at(&t, n, i);
            sum += d * d;
        }
        out[0] = sum / (double)t.count;
        loss_hits(&t, x, n, out);
    }
}

static void mse_backward_data(const struct op_call *c)
{
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < t.count; i++) {
            int64_t at = n * t.count + i;
            ((float *)c->gin[0])[at] = (float)(2 * (((const float *)c->in[0])[at] - loss_target_at(&t, n, i)) /
                                               (double)t.count * c->block->inv_weight);
        }
}

static const char *const examples[] = {"5 + class", "7 + vector", "2x3 + vector", NULL};
const struct op_kind op_mse = {
    .name = "mse",
    .text = "mean squared error",
    .n_in = 2,
    .takes = {TAKES(F32), TAKES(F32) | TAKES(I64)},
    .range = loss_range,
    .infer = loss_infer,
    .need_b = 3,
    .is_loss = true,
    .rows = loss_rows,
    .forward = mse_forward,
    .backward_data = mse_backward_data,
    .examples = examples,
};
