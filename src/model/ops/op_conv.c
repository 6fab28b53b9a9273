/* Convolution in one to three dimensions: out[o] = bias + sum over input channels and kernel of weight * in
 * (cross-correlation, as PyTorch). */
#include <math.h>
#include "model/ops/window.h"

enum { A_CHANNELS, A_KERNEL, A_STRIDE, A_PADDING, A_DILATION, A_GROUPS, A_BIAS };
static const struct attr_kind attrs[] = {
    {"channels", A_INT, 0, 1, 1 << 20, "output channels"},
    {"kernel", A_INTS, 1, 1, 1024, "window size"},
    {"stride", A_INTS, 1, 1, 1024, "step of the window"},
    {"padding", A_INTS, 0, 0, 1024, "zeros on each side"},
    {"dilation", A_INTS, 1, 1, 1024, "distance of kernel elements"},
    {"groups", A_INT, 1, 1, 1 << 20, "channel groups"},
    {"bias", A_BOOL, 1, 0, 1, "add a bias"},
    {NULL},
};

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    int64_t c = in[0]->d[0], o = n->attr[A_CHANNELS].i[0], g = n->attr[A_GROUPS].i[0];
    int ns = in[0]->n - 1;
    if (o < 1) return err_set(e, E_CONF, "channels is missing");
    if (window_make(n, in[0], &w, e)) return -1;
    if (c % g || o % g)
        return err_set(e, E_CONF, "%lld groups do not divide %lld input and %lld output channels", (long long)g,
                       (long long)c, (long long)o);
    window_shape(&w, o, ns, &f->out);
    f->n_param = n->attr[A_BIAS].i[0] ? 2 : 1;
    struct shape ws = {.n = ns + 2, .d = {o, c / g}};
    for (int i = 0; i < ns; i++) ws.d[i + 2] = w.k[3 - ns + i];
    double fan_in = (double)(c / g * window_k_size(&w)), fan_out = (double)(o / g * window_k_size(&w));
    f->param[0].suffix = "weight"; f->param[0].shape = ws; f->param[0].init = INIT_NORMAL;
    /* Kaiming, fan-out over all groups, gain of ReLU, as torchvision's ResNet */
    f->param[0].scale = sqrt(2 / (fan_out * (double)g));
    f->param[1].suffix = "bias";
    f->param[1].shape = (struct shape){1, {o}};
    f->param[1].init = INIT_UNIFORM;
    f->param[1].scale = 1 / sqrt(fan_in);
    return 0;
}

static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct shape *w = &g->param[n->param[0]].shape, *o = &g->tensor[n->out].shape;
    uint64_t macs = (uint64_t)shape_count(w) * (uint64_t)(shape_count(o) / o->d[0]);
    return 2 * macs;
}

struct call { struct window w; int64_t c, o, g, cg, og, is, os, ks; const float *x, *wt; float *y; };

static void unpack(const struct op_call *c, struct call *k)
{
    window_make(c->node, &c->g->tensor[c->node->in[0]].shape, &k->w, NULL);
    k->c = c->g->tensor[c->node->in[0]].shape.d[0];
    k->o = c->node->attr[A_CHANNELS].i[0];
    k->g = c->node->attr[A_GROUPS].i[0];
    k->cg = k->c / k->g;
    k->og = k->o / k->g;
    k->is = window_in_size(&k->w);
    k->os = window_out_size(&k->w);
    k->ks = window_k_size(&k->w);
    k->wt = c->param[0];
}

static void forward(const struct op_call *c)
{
    struct call k;
    unpack(c, &k);
    const float *bias = c->node->n_param > 1 ? c->param[1] : NULL;
    for (int n = 0; n < c->n; n++)
        for (int64_t o = 0; o < k.o; o++)
            for (int64_t s = 0; s < k.os; s++) {
                const float *x = (const float *)c->in[0] + (n * k.c + o / k.og * k.cg) * k.is,
                            *w = k.wt + o * k.cg * k.ks;
                double sum = bias ? bias[o] : 0;
                for (int64_t q = 0; q < k.ks; q++) {
                    int64_t at = window_at(&k.w, s, q);
                    if (at >= 0) for (int64_t i = 0; i < k.cg; i++) sum += (double)x[i * k.is + at] * w[i * k.ks + q];
                }
                ((float *)c->out)[(n * k.o + o) * k.os + s] = (float)sum;
            }
}

static double data_at(const struct call *k, const float *gy, int64_t i, int64_t at)
{
    int64_t group = i / k->cg, ig = i % k->cg;
    double sum = 0;
    for (int64_t q = 0; q < k->ks; q++) {
        int64_t s = window_from(&k->w, at, q);
        for (int64_t o = group * k->og; s >= 0 && o < (group + 1) * k->og; o++)
            sum += (double)gy[o * k->os + s] * k->wt[(o * k->cg + ig) * k->ks + q];
    }
    return sum;
}

static void backward_data(const struct op_call *c)
{
    struct call k;
    unpack(c, &k);
    for (int n = 0; n < c->n; n++)
        for (int64_t i = 0; i < k.c; i++)
            for (int64_t at = 0; at < k.is; at++)
                ((float *)c->gin[0])[(n * k.c + i) * k.is + at] = (float)data_at(
                    &k, (const float *)c->gout + n * k.o * k.os, i, at);
}

static void backward_weights(const struct op_call *c)
{
    struct call k;
    unpack(c, &k);
    float *gw = c->pgrad[0], *gb = c->node->n_param > 1 ? c->pgrad[1] : NULL;
    for (int64_t o = 0; gw && o < k.o; o++)
        for (int64_t i = 0; i < k.cg; i++)
            for (int64_t q = 0; q < k.ks; q++) {
                double sum = 0;
                for (int n = 0; n < c->n; n++) {
                    const float *x = (const float *)c->in[0] + (n * k.c + o / k.og * k.cg + i) * k.is,
                                *gy = (const float *)c->gout + (n * k.o + o) * k.os;
                    for (int64_t s = 0; s < k.os; s++) {
                        int64_t at = window_at(&k.w, s, q);
                        if (at >= 0) sum += (double)x[at] * gy[s];
                    }
                }
                gw[(o * k.cg + i) * k.ks + q] = (float)sum;
            }
    for (int64_t o = 0; gb && o < k.o; o++) {
        double sum = 0;
        for (int n = 0; n < c->n; n++)
            for (int64_t s = 0; s < k.os; s++) sum += ((const float *)c->gout)[(n * k.o + o) * k.os + s];
        gb[o] = (float)sum;
    }
}

static const char *const examples[] = {"2x5x5 channels=3 kernel=3",
                                       "3x6x6 channels=4 kernel=3 stride=2 padding=1 bias=no",
                                       "4x5x5 channels=6 kernel=1 bias=no",
                                       "4x5x4 channels=4 kernel=3x2 padding=1x0 groups=2",
                                       "4x6x6 channels=4 kernel=3 padding=2 dilation=2 groups=4",
                                       "2x7 channels=3 kernel=3 stride=2",
                                       "2x4x5x3 channels=3 kernel=3x3x2 padding=1",
                                       "16x6x6 channels=32 kernel=3 padding=1 bias=no",
                                       "32x5x5 channels=16 kernel=1 stride=2 bias=no",
                                       NULL};

const struct op_kind op_conv = {
    .name = "conv",
    .text = "convolution over one to three spatial dimensions",
    .does = OP_CONV,
    .min_in = 1,
    .max_in = 1,
    .attr = attrs,
    .infer = infer,
    .flops = flops,
    .need_b = 0,
    .need_w = 1 << 0,
    .grad_in = 1 << 0,
    .pgrad_in_w = 3,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
    .examples = examples,
};
