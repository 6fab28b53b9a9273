#include <math.h>
#include "model/ops/conv.h"

static bool turned(const struct node *n) { return n->op->category == OP_CONV_TRANSPOSED; }

struct conv conv_of(const struct op_call *c)
{
    const struct extent in = extent_in(c), out = extent_out(c);
    struct conv k = {.n = c->n, .c = in.c, .o = out.c, .groups = node_attr(c->node, "groups")->i[0]};
    if (turned(c->node)) k.c = out.c, k.o = in.c;
    window_of_product(c->node, &c->g->tensor[c->node->in[0]].shape, &k.w, NULL);
    return k;
}

int conv_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    const int64_t c = in[0]->d[0], o = node_attr(n, "channels")->i[0], g = node_attr(n, "groups")->i[0];
    if (o < 1) return err_set(e, E_CONF, "channels is missing");
    if (window_of_product(n, in[0], &w, e)) return -1;
    if (c % g || o % g)
        return err_set(e, E_CONF, "%lld groups do not divide %lld input and %lld output channels", (long long)g,
                       (long long)c, (long long)o);
    struct shape weight = {in[0]->n + 1, {turned(n) ? c : o, (turned(n) ? o : c) / g}};
    f->out.d[0] = o;
    for (int i = 1, at = 4 - in[0]->n; at < 3; i++, at++) {
        f->out.d[i] = turned(n) ? w.in[at] : w.out[at];
        weight.d[i + 1] = w.k[at];
    }
    const double bound = 1 / sqrt((double)(shape_count(&weight) / weight.d[0]));
    f->n_param = node_attr(n, "bias")->i[0] ? 2 : 1;
    f->param[0] = (struct infer_param){"weight", weight, INIT_UNIFORM, bound};
    f->param[1] = (struct infer_param){"bias", {1, {o}}, INIT_UNIFORM, bound};
    return 0;
}

uint64_t conv_flops(const struct graph *g, const struct node *n)
{
    const int64_t windows = extent_of(g, turned(n) ? n->in[0] : n->out, 1).points;
    return 2 * (uint64_t)shape_count(&g->param[n->param[0]].shape) * (uint64_t)windows;
}

void conv_forward(const struct conv *k, const float *x, const float *weight, const float *bias, float *y)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, is = window_in_size(&k->w), os = window_out_size(&k->w),
                  ks = window_k_size(&k->w);
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t o = 0; o < k->o; o++)
            for (int64_t s = 0; s < os; s++) {
                const float *from = x + (n * k->c + o / og * cg) * is, *w = weight + o * cg * ks;
                double sum = bias ? bias[o] : 0;
                for (int64_t q = 0; q < ks; q++) {
                    int64_t at = window_at(&k->w, s, q);
                    if (at >= 0) for (int64_t i = 0; i < cg; i++) sum += (double)from[i * is + at] * w[i * ks + q];
                }
                y[(n * k->o + o) * os + s] = (float)sum;
            }
}

/* One element of a sample's input gradient. */
static double data_at(const struct conv *k, const float *gy, const float *weight, int64_t i, int64_t at)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, os = window_out_size(&k->w), ks = window_k_size(&k->w);
    const int64_t group = i / cg, ig = i % cg;
    double sum = 0;
    for (int64_t q = 0; q < ks; q++) {
        int64_t s = window_from(&k->w, at, q);
        for (int64_t o = group * og; s >= 0 && o < (group + 1) * og; o++)
            sum += (double)gy[o * os + s] * weight[(o * cg + ig) * ks + q];
    }
    return sum;
}

void conv_data(const struct conv *k, const float *gy, const float *weight, const float *bias, float *gx)
{
    const int64_t is = window_in_size(&k->w), os = window_out_size(&k->w);
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t i = 0; i < k->c; i++)
            for (int64_t at = 0; at < is; at++)
                gx[(n * k->c + i) * is + at] =
                    (float)(data_at(k, gy + n * k->o * os, weight, i, at) + (bias ? bias[i] : 0));
}

void conv_weights(const struct conv *k, const float *x, const float *gy, float *gw)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, is = window_in_size(&k->w), os = window_out_size(&k->w),
                  ks = window_k_size(&k->w);
    for (int64_t o = 0; o < k->o; o++)
        for (int64_t i = 0; i < cg; i++)
            for (int64_t q = 0; q < ks; q++) {
                double sum = 0;
                for (int64_t n = 0; n < k->n; n++) {
                    const float *from = x + (n * k->c + o / og * cg + i) * is, *g = gy + (n * k->o + o) * os;
                    for (int64_t s = 0; s < os; s++) {
                        int64_t at = window_at(&k->w, s, q);
                        if (at >= 0) sum += (double)from[at] * g[s];
                    }
                }
                gw[(o * cg + i) * ks + q] = (float)sum;
            }
}

void conv_bias(int64_t n, int64_t channels, int64_t points, const float *g, float *gb)
{
    for (int64_t c = 0; c < channels; c++) {
        const struct extent d = {n, channels, points};
        double sum = 0;
        CHANNEL_EACH(d, c, at) sum += g[at];
        gb[c] = (float)sum;
    }
}
