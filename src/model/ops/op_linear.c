/* Linear layer: out = weight x in + bias. It works on a whole sample of one dimension (after `flatten`), or with
 * points=yes on the channels of each point, as torch.nn.Linear with channels last. */
#include <math.h>
#include "model/op.h"

enum { A_FEATURES, A_BIAS, A_POINTS, A_STORED };
static const struct attr_kind attrs[] = {
    {"features", A_INT, 0, 1, 1 << 24, "output features"}, {"bias", A_BOOL, 1, 0, 1, "add a bias"},
    {"points", A_BOOL, 0, 0, 1, "of the channels of each point; space stays as it is"},
    {"stored", A_WORD, 0, 0, 1, "the weight's dimensions in files; in_out is GPT-2's Conv1D", .words = "out_in in_out"},
    {NULL},
};

static int linear_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int64_t o = n->attr[A_FEATURES].i[0];
    char s[96];
    if (o < 1) return err_set(e, E_CONF, "features is missing");
    if (in[0]->n < 1 || (in[0]->n > 1 && !n->attr[A_POINTS].i[0]))
        return err_set(e, E_CONF,
                       "the input must be one-dimensional, it is %s: put flatten before it, or set points=yes",
                       shape_text(in[0], s));
    f->out.d[0] = o;
    f->n_param = n->attr[A_BIAS].i[0] ? 2 : 1;
    /* torch.nn.Linear: Kaiming uniform with a = sqrt(5) is 1 / sqrt(fan_in) */
    double bound = 1 / sqrt((double)in[0]->d[0]);
    f->param[0] = (struct infer_param){"weight", {2, {o, in[0]->d[0]}}, INIT_UNIFORM, bound,
                                        .turned = n->attr[A_STORED].i[0]};
    f->param[1] = (struct infer_param){"bias", {1, {o}}, INIT_UNIFORM, bound};
    return 0;
}

static uint64_t flops(const struct graph *g, const struct node *n)
{
    return 2 * (uint64_t)shape_count(&g->param[n->param[0]].shape) * (uint64_t)extent_of(g, n->out, 1).points;
}

static void linear_forward(const struct op_call *c)
{
    const struct extent in = extent_in(c), out = extent_out(c);
    const float *wt = c->param[0], *bias = c->node->n_param > 1 ? c->param[1] : NULL;
    for (int64_t n = 0; n < out.n; n++)
        for (int64_t o = 0; o < out.c; o++)
            for (int64_t p = 0; p < out.points; p++) {
                const float *x = (const float *)c->in[0] + n * in.c * in.points + p;
                double sum = bias ? bias[o] : 0;
                for (int64_t i = 0; i < in.c; i++) sum += (double)x[i * in.points] * wt[o * in.c + i];
                ((float *)c->out)[(n * out.c + o) * out.points + p] = (float)sum;
            }
}

static void linear_backward_data(const struct op_call *c)
{
    const struct extent in = extent_in(c), out = extent_out(c);
    const float *wt = c->param[0];
    for (int64_t n = 0; n < in.n; n++)
        for (int64_t i = 0; i < in.c; i++)
            for (int64_t p = 0; p < in.points; p++) {
                const float *gy = (const float *)c->gout + n * out.c * out.points + p;
                double sum = 0;
                for (int64_t o = 0; o < out.c; o++) sum += (double)gy[o * out.points] * wt[o * in.c + i];
                ((float *)c->gin[0])[(n * in.c + i) * in.points + p] = (float)sum;
            }
}

static void linear_backward_weights(const struct op_call *c)
{
    const struct extent in = extent_in(c), out = extent_out(c);
    const float *x = c->in[0], *gy = c->gout;
    float *gw = c->pgrad[0], *gb = c->node->n_param > 1 ? c->pgrad[1] : NULL;
    for (int64_t o = 0; o < out.c; o++) {
        double all = 0;
        CHANNEL_EACH(out, o, at) all += gy[at];
        if (gb) gb[o] = (float)all;
        for (int64_t i = 0; gw && i < in.c; i++) {
            double sum = 0;
            for (int64_t n = 0; n < in.n; n++)
                for (int64_t p = 0; p < in.points; p++)
                    sum += (double)gy[(n * out.c + o) * out.points + p] * x[(n * in.c + i) * in.points + p];
            gw[o * in.c + i] = (float)sum;
        }
    }
}

static const char *const examples[] = {"6 features=4", "5 features=3 bias=no", "32 features=16", "1 features=1",
                                       "16x3x3 features=8 points=yes", "5x7 features=3 bias=no points=yes", NULL};

const struct op_kind op_linear = {
    .name = "linear",
    .text = "fully connected layer",
    .category = OP_MATRIX,
    .attr = attrs,
    .infer = linear_infer,
    .flops = flops,
    .need_w = 1 << 0,
    .forward = linear_forward,
    .backward_data = linear_backward_data,
    .backward_weights = linear_backward_weights,
    .examples = examples,
};
