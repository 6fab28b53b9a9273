/* Softmax cross-entropy of one sample: -sum t log softmax(x), t <- (1 - smoothing) t + smoothing / classes, as
 * torch.nn.functional.cross_entropy. With the batch mean (R1) the gradient is (softmax sum(t) - t) / N. */
#include <math.h>
#include "model/ops/loss.h"

/* One softmax a sample: a distribution for every pixel is not built. */
static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    char s[96];
    if (loss_infer(n, in, f, e)) return -1;
    if (in[0]->n == 1) return 0;
    return err_set(e, E_CONF,
                   "%s wants one output a class, and the output is %s: put flatten, or global_avg_pool and flatten, "
                   "before it, or take mse", n->op->name, shape_text(in[0], s));
}

static double log_sum(const float *x, int64_t n)
{
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

/* The smoothed target of output i; the target itself where nothing is smoothed. */
static double at(const struct op_call *c, const struct loss_target *t, int n, int64_t i)
{
    double smoothing = c->node->attr[0].r;
    return (1 - smoothing) * loss_target_at(t, n, i) + smoothing / (double)t->count;
}

static void forward(const struct op_call *c)
{
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double lse = log_sum(x, t.count), loss = 0, *out = (double *)c->out + LOSS_COLUMNS * n;
        for (int64_t i = 0; i < t.count; i++) {
            double p = at(c, &t, n, i);
            if (p != 0) loss -= p * (x[i] - lse);
        }
        out[0] = loss;
        loss_hits(&t, x, n, out);
    }
}

static void backward_data(const struct op_call *c)
{
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double lse = log_sum(x, t.count), mass = 0;
        for (int64_t i = 0; i < t.count; i++) mass += at(c, &t, n, i);
        for (int64_t i = 0; i < t.count; i++)
            ((float *)c->gin[0])[n * t.count + i] =
                (float)((exp(x[i] - lse) * mass - at(c, &t, n, i)) * c->block->inv_weight);
    }
}

static void probabilities(const float *x, int64_t n, double *p)
{
    double lse = log_sum(x, n);
    for (int64_t i = 0; i < n; i++) p[i] = exp(x[i] - lse);
}

static const struct attr_kind attrs[] = {
    {"smoothing", A_REAL, 0, 0, 1, .text = "so much of every target is spread evenly over all classes"}, {0}};
static const char *const examples[] = {"5 + class", "7 + vector", "1 + class", "5 + class smoothing=0.1",
                                       "7 + vector smoothing=0.3", NULL};
const struct op_kind op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .text = "cross-entropy of softmax with a class or a distribution",
    .min_in = 2,
    .max_in = 2,
    .takes = {TAKES(F32), TAKES(F32) | TAKES(I64)},
    .attr = attrs,
    .range = loss_range,
    .infer = infer,
    .need_b = 3,
    .grad_in = 1,
    .is_loss = true,
    .probabilities = probabilities,
    .rows = loss_rows,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
