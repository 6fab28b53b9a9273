/* Product of two tensors, element by element. The second may have one point per channel, which then multiplies all
 * points of the channel, as in squeeze and excitation: CxHxW times Cx1x1, or times C. */
#include "model/ops/multiply.h"

static int multiply_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    char a[96], b[96];
    bool fits = in[0]->n > 0 && (in[1]->n == in[0]->n || in[1]->n == 1) && in[0]->d[0] == in[1]->d[0];
    bool each = fits && shape_count(in[1]) == in[1]->d[0];
    if (!each && !shape_equal(in[0], in[1]))
        return err_set(e, E_CONF, "factors differ: %s and %s; the second may have one point a channel",
                       shape_text(in[0], a), shape_text(in[1], b));
    return 0;
}

static void multiply_forward(const struct op_call *c)
{
    const struct factors k = factors_of(c->g, c->node, c->n);
    const float *x = c->in[0], *f = c->in[1];
    float *y = c->out;
    for (int64_t i = 0; i < k.n * k.factors; i++)
        for (int64_t p = 0; p < k.points; p++, x++, y++) *y = *x * f[i];
}

static void multiply_backward_data(const struct op_call *c)
{
    const struct factors k = factors_of(c->g, c->node, c->n);
    const float *x = c->in[0], *f = c->in[1], *gy = c->gout;
    float *gx = c->gin[0], *gf = c->gin[1];
    for (int64_t i = 0; i < k.n * k.factors; i++) {
        double sum = 0;
        for (int64_t p = i * k.points; p < (i + 1) * k.points; p++) {
            if (gx) gx[p] = gy[p] * f[i];
            sum += (double)gy[p] * x[p];
        }
        if (gf) gf[i] = (float)sum;
    }
}

static const char *const examples[] = {"6 + 6", "16x3x3 + 16x3x3", "16x3x3 + 16x1x1", "5x4x2 + 5x1x1", "16x3x3 + 16",
                                       "3x2x3x2 + 3x1x1x1", "6 + =0", "16x3x3 + =0", "5x4x2 + =0", "16x1x1 + =0", NULL};
const struct op_kind op_multiply = {
    .name = "multiply",
    .text = "product of two tensors of one shape, or of the second's one point with all points of each channel",
    .keeps_layout = true,
    .n_in = 2,
    .infer = multiply_infer,
    .need_b = 3,
    .forward = multiply_forward,
    .backward_data = multiply_backward_data,
    .examples = examples,
};
