/* RMS norm (Zhang and Sennrich 2019): y = weight x / sqrt(mean x^2 + eps) over the channels of each point, as
 * torch.nn.RMSNorm with channels last. With heads, the channels of each head by themselves, with one weight for all
 * heads, as Qwen3 normalises queries and keys. */
#include <math.h>
#include "model/ops/rms_norm.h"
#include "model/ops/tile.h"

static const struct attr_kind attrs[] = {
    {"eps", A_REAL, 1e-5, 1e-12, 1, "added to the mean of squares"},
    {"heads", A_INT, 1, 1, 1 << 16, "parts of the channels, each normalised by itself"}, {NULL}};

static int rms_norm_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int64_t heads = n->attr[1].i[0], c = in[0]->d[0];
    if (c % heads)
        return err_set(e, E_CONF, "%lld channels are not a multiple of %lld heads", (long long)c, (long long)heads);
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", {1, {c / heads}}, INIT_ONE};
    return 0;
}

static size_t rms_norm_saved(const struct graph *g, const struct node *n, int samples)
{
    const struct rms_norm r = rms_norm_of(g, n, samples);
    return sizeof(float) * (size_t)(r.n * r.heads * r.points);
}

/* Backends use these loops, too: this vectorises them where the order of sums does not matter. Consecutive channels of
 * a tile are `points` apart. */
#pragma GCC optimize("O3")

/* Some points of a head of a sample. */
struct rms_tile { const float *x, *gy; float *kept; int64_t at; int some; };
static struct rms_tile tile_of(const struct op_call *call, const struct rms_norm *r, int64_t head, int64_t point)
{
    const int64_t at = head * r->width * r->points + point;
    const float *gy = call->gout ? (const float *)call->gout + at : NULL;
    return (struct rms_tile){(const float *)call->in[0] + at, gy, (float *)call->saved + head * r->points + point, at,
                             tile_size(r->points, point)};
}

static void tile_forward(const struct op_call *call, const struct rms_norm *r, const struct rms_tile *t)
{
    const float *w = call->param[0];
    float *y = (float *)call->out + t->at;
    double factor[TILE] = {0};
    for (int64_t c = 0; c < r->width; c++)
        for (int i = 0; i < t->some; i++) {
            const double x = t->x[c * r->points + i];
            factor[i] += x * x;
        }
    for (int i = 0; i < t->some; i++) {
        factor[i] = 1 / sqrt(factor[i] / (double)r->width + r->eps);
        t->kept[i] = (float)factor[i];
    }
    for (int64_t c = 0; c < r->width; c++)
        for (int i = 0; i < t->some; i++)
            y[c * r->points + i] = (float)(t->x[c * r->points + i] * factor[i] * w[c]);
}

/* With u = x r and g = weight dy: dx = r (g - u mean(g u)). */
static void tile_backward(const struct op_call *call, const struct rms_norm *r, const struct rms_tile *t)
{
    const float *w = call->param[0];
    float *gx = (float *)call->gin[0] + t->at;
    double dot[TILE] = {0};
    for (int64_t c = 0; c < r->width; c++)
        for (int i = 0; i < t->some; i++)
            dot[i] += (double)t->gy[c * r->points + i] * w[c] * ((double)t->x[c * r->points + i] * t->kept[i]);
    for (int64_t c = 0; c < r->width; c++)
        for (int i = 0; i < t->some; i++) {
            const double u = (double)t->x[c * r->points + i] * t->kept[i];
            gx[c * r->points + i] =
                (float)(t->kept[i] * ((double)t->gy[c * r->points + i] * w[c] - u * dot[i] / (double)r->width));
        }
}

static void tiles(const struct op_call *call,
                  void (*run)(const struct op_call *, const struct rms_norm *, const struct rms_tile *))
{
    const struct rms_norm r = rms_norm_of(call->g, call->node, call->n);
    for (int64_t head = 0; head < r.n * r.heads; head++)
        for (int64_t p = 0; p < r.points; p += TILE) {
            const struct rms_tile t = tile_of(call, &r, head, p);
            run(call, &r, &t);
        }
}

static void rms_norm_forward(const struct op_call *call) { tiles(call, tile_forward); }
static void rms_norm_backward_data(const struct op_call *call) { tiles(call, tile_backward); }

static void rms_norm_backward_weights(const struct op_call *call)
{
    const struct rms_norm r = rms_norm_of(call->g, call->node, call->n);
    for (int64_t c = 0; c < r.width; c++) {
        double sum = 0;
        for (int64_t head = 0; head < r.n * r.heads; head++) {
            const int64_t at = (head * r.width + c) * r.points;
            const float *x = (const float *)call->in[0] + at, *gy = (const float *)call->gout + at,
                        *kept = (const float *)call->saved + head * r.points;
            for (int64_t p = 0; p < r.points; p++) sum += (double)gy[p] * ((double)x[p] * kept[p]);
        }
        ((float *)call->pgrad[0])[c] = (float)sum;
    }
}

static const char *const examples[] = {"6", "16x3x3", "5x40 eps=0.01", "12x7 heads=3", "24x35 heads=2 eps=1e-6", NULL};
const struct op_kind op_rms_norm = {
    .name = "rms_norm",
    .text = "division by the root of the mean square over the channels of each point",
    .attr = attrs,
    .infer = rms_norm_infer,
    .saved_bytes = rms_norm_saved,
    .need_b = 1 << 0 | NEED_SAVED,
    .need_w = 1 << 0 | NEED_SAVED,
    .forward = rms_norm_forward,
    .backward_data = rms_norm_backward_data,
    .backward_weights = rms_norm_backward_weights,
    .examples = examples,
};
