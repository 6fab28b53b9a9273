/* Average pooling to a given size, as torch.nn.AdaptiveAvgPool2d: output o of O reads inputs floor(o I / O) to
 * ceil((o + 1) I / O) - 1 of I. */
#include "model/ops/adaptive.h"

enum { A_SIZE };
static const struct attr_kind attrs[] = {{"size", A_INTS, 1, 1, 1 << 16, "output size"}, {NULL}};

static int adaptive_avg_pool_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int spatial = space_check(n, in[0], e);
    for (int i = 0; i < spatial; i++) f->out.d[i + 1] = space_value(&n->attr[A_SIZE], i);
    return spatial < 0 ? -1 : 0;
}

/* One plane, forward or backward: visits every output with its window, in order. */
static void windows_walk(const struct adaptive *a, const float *from, float *to, bool back)
{
    for (int64_t o = 0; o < a->out[0] * a->out[1] * a->out[2]; o++) {
        int64_t at[3] = {o / (a->out[1] * a->out[2]), o / a->out[2] % a->out[1], o % a->out[2]};
        struct window_span s[3];
        for (int d = 0; d < 3; d++) s[d] = adaptive_span(a, d, at[d]);
        double sum = 0, size = (double)((s[0].to - s[0].from) * (s[1].to - s[1].from) * (s[2].to - s[2].from));
        for (int64_t i = s[0].from; i < s[0].to; i++)
            for (int64_t j = s[1].from; j < s[1].to; j++)
                for (int64_t k = s[2].from; k < s[2].to; k++) {
                    int64_t x = (i * a->in[1] + j) * a->in[2] + k;
                    if (back) to[x] += (float)(from[o] / size);
                    else sum += from[x];
                }
        if (!back) to[o] = (float)(sum / size);
    }
}

static void adaptive_avg_pool_forward(const struct op_call *c)
{
    const struct adaptive a = adaptive_of(c->g, c->node, c->n);
    for (int64_t p = 0; p < a.planes; p++)
        windows_walk(&a, (const float *)c->in[0] + p * adaptive_in(&a), (float *)c->out + p * adaptive_out(&a), false);
}

/* Windows add to the gradient in output order. */
static void adaptive_avg_pool_backward_data(const struct op_call *c)
{
    const struct adaptive a = adaptive_of(c->g, c->node, c->n);
    float *gx = c->gin[0];
    for (int64_t i = 0; i < a.planes * adaptive_in(&a); i++) gx[i] = 0;
    for (int64_t p = 0; p < a.planes; p++)
        windows_walk(&a, (const float *)c->gout + p * adaptive_out(&a), gx + p * adaptive_in(&a), true);
}

static const char *const examples[] = {"3x7x7 size=7", "16x4x6 size=2x3", "2x5x7 size=3", "4x2x3 size=7", "3x8 size=3",
                                       "2x3x4x5 size=2", "16x6x6 size=1", NULL};
const struct op_kind op_adaptive_avg_pool = {
    .name = "adaptive_avg_pool",
    .text = "mean over windows that make an output of a given size",
    .keeps_layout = true,
    .attr = attrs,
    .infer = adaptive_avg_pool_infer,
    .forward = adaptive_avg_pool_forward,
    .backward_data = adaptive_avg_pool_backward_data,
    .examples = examples,
};
