/* Linear layer: out = weight x in + bias on the last dimension's whole sample (inputs of any shape are flattened by
 * `flatten` before). */
#include <math.h>
#include "model/op.h"

enum { A_FEATURES, A_BIAS };
static const struct attr_kind attrs[] = {
    {"features", A_INT, 0, 1, 1 << 24, "output features"}, {"bias", A_BOOL, 1, 0, 1, "add a bias"}, {NULL},
};

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int64_t o = n->attr[A_FEATURES].i[0];
    char s[96];
    if (o < 1) return err_set(e, E_CONF, "features is missing");
    if (in[0]->n != 1)
        return err_set(e, E_CONF, "the input must be one-dimensional, it is %s: put flatten before it",
                       shape_text(in[0], s));
    f->out = (struct shape){1, {o}};
    f->n_param = n->attr[A_BIAS].i[0] ? 2 : 1;
    /* torch.nn.Linear: Kaiming uniform with a = sqrt(5) is 1 / sqrt(fan_in) */
    double bound = 1 / sqrt((double)in[0]->d[0]);
    f->param[0].suffix = "weight";
    f->param[0].shape = (struct shape){2, {o, in[0]->d[0]}};
    f->param[0].init = INIT_UNIFORM;
    f->param[0].scale = bound;
    f->param[1].suffix = "bias";
    f->param[1].shape = (struct shape){1, {o}};
    f->param[1].init = INIT_UNIFORM;
    f->param[1].scale = bound;
    return 0;
}

static uint64_t flops(const struct graph *g, const struct node *n)
{
    return 2 * (uint64_t)shape_count(&g->param[n->param[0]].shape);
}

static void forward(const struct op_call *c)
{
    const struct shape *w = &c->g->param[c->node->param[0]].shape;
    const float *wt = c->param[0], *bias = c->node->n_param > 1 ? c->param[1] : NULL;
    for (int n = 0; n < c->n; n++)
        for (int64_t o = 0; o < w->d[0]; o++) {
            const float *x = (const float *)c->in[0] + n * w->d[1];
            double sum = bias ? bias[o] : 0;
            for (int64_t i = 0; i < w->d[1]; i++) sum += (double)x[i] * wt[o * w->d[1] + i];
            ((float *)c->out)[n * w->d[0] + o] = (float)sum;
        }
}

static void backward_data(const struct op_call *c)
{
    const struct shape *w = &c->g->param[c->node->param[0]].shape;
    const float *wt = c->param[0];
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < w->d[1]; i++) {
            const float *gy = (const float *)c->gout + n * w->d[0];
            double sum = 0;
            for (int64_t o = 0; o < w->d[0]; o++) sum += (double)gy[o] * wt[o * w->d[1] + i];
            ((float *)c->gin[0])[n * w->d[1] + i] = (float)sum;
        }
}

static void backward_weights(const struct op_call *c)
{
    const struct shape *w = &c->g->param[c->node->param[0]].shape;
    float *gw = c->pgrad[0], *gb = c->node->n_param > 1 ? c->pgrad[1] : NULL;
    const float *gy = c->gout, *x = c->in[0];
    for (int64_t o = 0; o < w->d[0]; o++) {
        for (int64_t i = 0; gw && i < w->d[1]; i++) {
            double sum = 0;
            for (int n = 0; n < c->n; n++) sum += (double)gy[n * w->d[0] + o] * x[n * w->d[1] + i];
            gw[o * w->d[1] + i] = (float)sum;
        }
        double sum = 0;
        for (int n = 0; gb && n < c->n; n++) sum += gy[n * w->d[0] + o];
        if (gb) gb[o] = (float)sum;
    }
}

static const char *const examples[] = {"6 features=4", "5 features=3 bias=no", "32 features=16", "1 features=1", NULL};

const struct op_kind op_linear = {
    .name = "linear",
    .text = "fully connected layer",
    .does = OP_MATRIX,
    .min_in = 1,
    .max_in = 1,
    .attr = attrs,
    .infer = infer,
    .flops = flops,
    .need_w = 1 << 0,
    .grad_in = 1 << 0,
    .pgrad_in_w = 3,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
    .examples = examples,
};
