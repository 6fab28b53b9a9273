/* Multi-head self-attention (Vaswani and others 2017) without a mask: softmax(q k^T / sqrt(width)) v for each head, as
 * in torch.nn.MultiheadAttention between its two projections. With E output channels, the input has 3 E: queries, then
 * keys, then values, each split into heads. Channels come first; positions are all points of a sample.
 *
 * No matrix of positions times positions is stored. Backward recomputes scores from the input, and probabilities from
 * the saved values (ops/attention.h). */
#include "model/ops/attention.h"
#include "model/ops/tile.h"

enum { A_HEADS };
static const struct attr_kind attrs[] = {
    {"heads", A_INT, 1, 1, 1 << 16, "how many share the channels; on GPUs each has at most 128"}, {NULL}};

static int attention_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int64_t heads = n->attr[A_HEADS].i[0];
    if (in[0]->n < 2) return err_set(e, E_CONF, "the input has no positions: expected channels, then positions");
    if (in[0]->d[0] % 3)
        return err_set(e, E_CONF, "%lld channels are not queries, keys and values of one width",
                       (long long)in[0]->d[0]);
    f->out.d[0] /= 3;
    if (f->out.d[0] % heads)
        return err_set(e, E_CONF, "%lld channels are not a multiple of %lld heads", (long long)f->out.d[0],
                       (long long)heads);
    return 0;
}

/* Scores, and weighted sums of values. */
static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct attention a = attention_of(g, n, 1);
    return 4 * (uint64_t)(a.points * a.heads * a.width) * (uint64_t)a.points;
}

static size_t saved_bytes(const struct graph *g, const struct node *n, int samples)
{
    const struct attention a = attention_of(g, n, samples);
    return 2 * (size_t)(a.n * a.heads * a.points) * sizeof(float);
}

/* One head of one sample: matrices [width][points]. dq, dk, dv: gradients. */
struct attention_head { const float *q, *k, *v, *o, *go; float *out, *dq, *dk, *dv, *kept; int64_t points, width;
                       double scale; };

static struct attention_head head_of(const struct op_call *c, const struct attention *a, int64_t i)
{
    int64_t one = a->width * a->points, all = a->heads * one, from = i / a->heads * 3 * all + i % a->heads * one;
    const float *x = (const float *)c->in[0] + from;
    struct attention_head h = {.q = x, .k = x + all, .v = x + 2 * all, .kept = (float *)c->saved + 2 * i * a->points,
                               .points = a->points, .width = a->width, .scale = a->scale};
    if (c->out) h.o = h.out = (float *)c->out + i * one;
    if (!c->gin[0]) return h;
    h.go = (const float *)c->gout + i * one;
    h.dq = (float *)c->gin[0] + from;
    h.dk = h.dq + all;
    h.dv = h.dk + all;
    return h;
}

/* Dot product of column i of x and column j of y. */
static double product(const struct attention_head *h, const float *x, int64_t i, const float *y, int64_t j)
{
    double sum = 0;
    for (int64_t w = 0; w < h->width; w++) sum += (double)x[w * h->points + i] * y[w * h->points + j];
    return sum;
}
static double score(const struct attention_head *h, int64_t i, int64_t j)
{
    return h->scale * product(h, h->q, i, h->k, j);
}

/* Saves the row's largest score and its scale as floats; returns the logarithm of the row's sum. */
static double log_sum(const struct attention_head *h, int64_t i)
{
    double most = score(h, i, 0), sum = 0;
    for (int64_t j = 1; j < h->points; j++) if (score(h, i, j) > most) most = score(h, i, j);
    for (int64_t j = 0; j < h->points; j++) sum += exp(score(h, i, j) - most);
    h->kept[2 * i] = (float)most;
    h->kept[2 * i + 1] = (float)(exp(h->kept[2 * i] - most) / sum);   /* relative to the saved score */
    return most + log(sum);
}

static double probability(const struct attention_head *h, int64_t i, int64_t j)
{
    return exp(score(h, i, j) - h->kept[2 * i]) * h->kept[2 * i + 1];
}

/* Adds `by` times column j of x to the sums of `some` channels from `w` on. */
static void tile_add(const struct attention_head *h, double sum[TILE], double by, const float *x, int64_t j, int64_t w,
                     int some)
{
    for (int t = 0; t < some; t++) sum[t] += by * x[(w + t) * h->points + j];
}
static void tile_store(const struct attention_head *h, const double sum[TILE], float *y, int64_t i, int64_t w, int some)
{
    for (int t = 0; t < some; t++) y[(w + t) * h->points + i] = (float)sum[t];
}

static void attention_forward(const struct op_call *c)
{
    const struct attention a = attention_of(c->g, c->node, c->n);
    for (int64_t n = 0; n < a.n * a.heads; n++) {
        const struct attention_head h = head_of(c, &a, n);
        for (int64_t i = 0; i < h.points; i++) {
            const double sum_log = log_sum(&h, i);
            for (int64_t w = 0; w < h.width; w += TILE) {
                double sum[TILE] = {0};
                for (int64_t j = 0; j < h.points; j++)
                    tile_add(&h, sum, exp(score(&h, i, j) - sum_log), h.v, j, w, tile_size(h.width, w));
                tile_store(&h, sum, h.out, i, w, tile_size(h.width, w));
            }
        }
    }
}

/* With p = softmax(s), dp = go^T v: dv = go p, ds = p (dp - sum of p dp over a row); that sum is go^T o; dq = scale k
 * ds^T, dk = scale q ds. */
static void backward_query(const struct attention_head *h, int64_t i)
{
    double mean = product(h, h->go, i, h->o, i);
    for (int64_t w = 0; w < h->width; w += TILE) {
        double sum[TILE] = {0};
        for (int64_t j = 0; j < h->points; j++) {
            double p = probability(h, i, j);
            tile_add(h, sum, h->scale * p * (product(h, h->go, i, h->v, j) - mean), h->k, j, w, tile_size(h->width, w));
        }
        tile_store(h, sum, h->dq, i, w, tile_size(h->width, w));
    }
}

static void backward_key(const struct attention_head *h, int64_t j)
{
    for (int64_t w = 0; w < h->width; w += TILE) {
        double key[TILE] = {0}, value[TILE] = {0};
        for (int64_t i = 0; i < h->points; i++) {
            double p = probability(h, i, j), mean = product(h, h->go, i, h->o, i);
            tile_add(h, key, h->scale * p * (product(h, h->go, i, h->v, j) - mean), h->q, i, w, tile_size(h->width, w));
            tile_add(h, value, p, h->go, i, w, tile_size(h->width, w));
        }
        tile_store(h, key, h->dk, j, w, tile_size(h->width, w));
        tile_store(h, value, h->dv, j, w, tile_size(h->width, w));
    }
}

static void attention_backward_data(const struct op_call *c)
{
    const struct attention a = attention_of(c->g, c->node, c->n);
    for (int64_t n = 0; n < a.n * a.heads; n++) {
        const struct attention_head h = head_of(c, &a, n);
        for (int64_t i = 0; i < h.points; i++) {
            backward_query(&h, i);
            backward_key(&h, i);
        }
    }
}

static const char *const examples[] = {"6x5 heads=2", "3x4", "36x3x2 heads=3", "12x2x3x2 heads=4", "24x1 heads=2",
                                       "105x37 heads=1", NULL};
const struct op_kind op_attention = {
    .name = "attention",
    .text = "self-attention of all points; channels are queries, keys, values",
    .category = OP_ATTENTION,
    .attr = attrs,
    .infer = attention_infer,
    .flops = flops,
    .saved_bytes = saved_bytes,
    .need_b = 1 << 0 | NEED_OUT | NEED_SAVED,
    .forward = attention_forward,
    .backward_data = attention_backward_data,
    .examples = examples,
};
