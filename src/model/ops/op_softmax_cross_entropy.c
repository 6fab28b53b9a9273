/* Softmax cross-entropy of one sample: -sum t log softmax(x), t <- (1 - smoothing) t + smoothing / classes, as
 * torch.nn.functional.cross_entropy. With the batch mean (R1) the gradient is (softmax sum(t) - t) / N. If the target
 * has a class at each point of the output, loss and hits are means over the sample's points. */
#include <math.h>
#include "model/ops/loss.h"
#include "model/ops/segment.h"

static bool of_points(enum dtype target, const struct shape *shape) { return label_type(target) && shape->n > 0; }

/* One softmax per sample, or one per point. Distributions as targets are not supported for points. */
static int softmax_cross_entropy_infer(const struct node *n, const struct shape *const *in, struct infer *f,
                                       struct err *e)
{
    char s[96];
    if (of_points(f->in_type[1], in[1])) {
        if (segment_check(n, in, e)) return -1;
        if (in[0]->d[0] < 2)
            return err_set(e, E_CONF, "softmax of one channel is 1 everywhere: use two channels, or dice_ce");
        f->out = (struct shape){1, {LOSS_COLUMNS}};
        f->type = F64;
        return 0;
    }
    if (loss_infer(n, in, f, e)) return -1;
    if (in[0]->n == 1) return 0;
    return err_set(e, E_CONF,
                   "%s needs one output per class, and the output is %s: put flatten, or global_avg_pool and flatten, "
                   "before it, compare with a map of classes, or use mse", n->op->name, shape_text(in[0], s));
}

static int64_t range(const struct graph *g, const struct node *n, int in)
{
    const struct tensor *t = &g->tensor[n->in[1]];
    return of_points(t->type, &t->shape) ? segment_range(g, n, in) : loss_range(g, n, in);
}

/* The smoothed target of output i; the target itself without smoothing. */
static double softmax_cross_entropy_at(const struct op_call *c, const struct loss_target *t, int n, int64_t i)
{
    double smoothing = c->node->attr[0].r;
    return (1 - smoothing) * loss_target_at(t, n, i) + smoothing / (double)t->count;
}

static bool call_of_points(const struct op_call *c)
{
    const struct tensor *t = &c->g->tensor[c->node->in[1]];
    return of_points(t->type, &t->shape);
}

/* Adds a point's loss and hits. `before` counts outputs larger than the right class's, and equal earlier ones. */
static void point_forward(const struct segment *s, double smoothing, int64_t i, double sum[LOSS_COLUMNS])
{
    const double lse = segment_log_sum(s, i), spread = smoothing / (double)s->c;
    const int64_t right = label_at(s->y, i);
    const bool known = right >= 0 && right < s->c;
    const double x = known ? s->x[right * s->points + i] : 0;
    int64_t before = 0;
    for (int64_t c = 0; c < s->c; c++) {
        const double v = s->x[c * s->points + i], p = (1 - smoothing) * (c == right) + spread;
        if (p != 0) sum[0] -= p * (v - lse);
        before += v > x || (v == x && c < right) || x != x;
    }
    sum[1] += known && before < 1;
    sum[2] += known && before < 5;
}

static void points_forward(const struct op_call *c)
{
    for (int n = 0; n < c->n; n++) {
        const struct segment s = segment_of(c, n);
        double sum[LOSS_COLUMNS] = {0};
        for (int64_t i = 0; i < s.points; i++) point_forward(&s, c->node->attr[0].r, i, sum);
        for (int k = 0; k < LOSS_COLUMNS; k++) ((double *)c->out)[LOSS_COLUMNS * n + k] = sum[k] / (double)s.points;
    }
}

/* Uses that the targets' sum is 1. */
static void points_backward(const struct op_call *c)
{
    const double smoothing = c->node->attr[0].r;
    for (int n = 0; n < c->n; n++) {
        const struct segment s = segment_of(c, n);
        const double by = c->block->inv_weight / (double)s.points, spread = smoothing / (double)s.c;
        float *gx = (float *)c->gin[0] + n * s.c * s.points;
        for (int64_t i = 0; i < s.points; i++) {
            const double lse = segment_log_sum(&s, i);
            const int64_t right = label_at(s.y, i);
            for (int64_t k = 0; k < s.c; k++)
                gx[k * s.points + i] =
                    (float)((exp(s.x[k * s.points + i] - lse) - (1 - smoothing) * (k == right) - spread) * by);
        }
    }
}

static void softmax_cross_entropy_forward(const struct op_call *c)
{
    if (call_of_points(c)) { points_forward(c); return; }
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double lse = log_sum(x, t.count, 1), loss = 0, *out = (double *)c->out + LOSS_COLUMNS * n;
        for (int64_t i = 0; i < t.count; i++) {
            double p = softmax_cross_entropy_at(c, &t, n, i);
            if (p != 0) loss -= p * (x[i] - lse);
        }
        out[0] = loss;
        loss_hits(&t, x, n, out);
    }
}

static void softmax_cross_entropy_backward_data(const struct op_call *c)
{
    if (call_of_points(c)) { points_backward(c); return; }
    struct loss_target t = loss_target_of(c);
    for (int n = 0; n < c->n; n++) {
        const float *x = (const float *)c->in[0] + n * t.count;
        double lse = log_sum(x, t.count, 1), mass = 0;
        for (int64_t i = 0; i < t.count; i++) mass += softmax_cross_entropy_at(c, &t, n, i);
        for (int64_t i = 0; i < t.count; i++)
            ((float *)c->gin[0])[n * t.count + i] =
                (float)((exp(x[i] - lse) * mass - softmax_cross_entropy_at(c, &t, n, i)) * c->block->inv_weight);
    }
}

static void probabilities(const float *x, int64_t n, double *p)
{
    double lse = log_sum(x, n, 1);
    for (int64_t i = 0; i < n; i++) p[i] = exp(x[i] - lse);
}

static const struct attr_kind attrs[] = {
    {"smoothing", A_REAL, 0, 0, 1, .text = "so much of every target is spread evenly over all classes"}, {0}};
static const char *const examples[] = {"5 + class", "7 + vector", "1 + class", "5 + class smoothing=0.1",
                                       "7 + vector smoothing=0.3",
                                       "3x5 + 5 I64", "2x3x4x2 + 3x4x2 I32", "7x4x3 + 4x3 U8 smoothing=0.1", NULL};
const struct op_kind op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .text = "cross-entropy of softmax with a class, a distribution, or a class at each point",
    .n_in = 2,
    .takes = {TAKES(F32), TAKES(F32) | TAKES(I64) | TAKES(U8) | TAKES(I32)},
    .attr = attrs,
    .range = range,
    .infer = softmax_cross_entropy_infer,
    .need_b = 3,
    .is_loss = true,
    .probabilities = probabilities,
    .rows = loss_rows,
    .forward = softmax_cross_entropy_forward,
    .backward_data = softmax_cross_entropy_backward_data,
    .examples = examples,
};
