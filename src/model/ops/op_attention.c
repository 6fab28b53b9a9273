/* Multi-head attention (Vaswani and others 2017): softmax(q k^T / sqrt(width)) v for each head, as in
 * torch.nn.functional.scaled_dot_product_attention. Queries, keys and values are three inputs, or one input with 3 E
 * channels for E output channels: queries, then keys, then values, each split into heads. Several heads of queries may
 * share a head of keys and values (kv_heads). Channels come first; positions are all points of a sample.
 *
 * causal: a position sees itself and those before it. The last of four inputs has the position of each point in its
 * document: point i sees no point before i - p_i.
 *
 * No matrix of positions times positions is stored. Backward recomputes scores from the input, and probabilities from
 * the saved values (ops/attention.h). */
#include "model/ops/attention.h"
#include "model/ops/tile.h"

static const struct attr_kind attrs[] = {
    [ATTENTION_HEADS] = {"heads", A_INT, 1, 1, 1 << 16, "how many share the channels; on GPUs each has at most 128"},
    [ATTENTION_KV_HEADS] = {"kv_heads", A_INT, 0, 0, 1 << 16, "of keys and values, if fewer; 0: as many"},
    [ATTENTION_CAUSAL] = {"causal", A_BOOL, 0, 0, 1, "a position sees none behind it"}, {NULL}};

static int apart_infer(const struct node *n, const struct shape *const *in, int64_t heads, int64_t kv, struct err *e)
{
    struct shape keys = *in[0];
    char a[96], b[96];
    keys.d[0] = in[0]->d[0] / heads * kv;
    for (int i = 1; i < 3; i++)
        if (!shape_equal(in[i], &keys))
            return err_set(e, E_CONF, "%s %s do not fit: expected %s", i == 1 ? "keys" : "values",
                           shape_text(in[i], a), shape_text(&keys, b));
    if (n->n_in < 4) return 0;
    if (!n->attr[ATTENTION_CAUSAL].i[0]) return err_set(e, E_CONF, "positions need causal=yes");
    if (shape_count(in[3]) == shape_count(in[0]) / in[0]->d[0]) return 0;
    return err_set(e, E_CONF, "positions %s do not fit the queries %s", shape_text(in[3], a), shape_text(in[0], b));
}

static int attention_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int64_t heads = n->attr[ATTENTION_HEADS].i[0], kv = n->attr[ATTENTION_KV_HEADS].i[0];
    if (in[0]->n < 2) return err_set(e, E_CONF, "the input has no positions: expected channels, then positions");
    if (n->n_in == 2) return err_set(e, E_CONF, "two inputs: expected one, or queries, keys and values");
    if (n->n_in == 1) {
        if (in[0]->d[0] % 3)
            return err_set(e, E_CONF, "%lld channels are not queries, keys and values of one width",
                           (long long)in[0]->d[0]);
        if (kv && kv != heads)
            return err_set(e, E_CONF, "kv_heads=%lld needs queries, keys and values as three inputs", (long long)kv);
        f->out.d[0] /= 3;
    }
    if (f->out.d[0] % heads)
        return err_set(e, E_CONF, "%lld channels are not a multiple of %lld heads", (long long)f->out.d[0],
                       (long long)heads);
    if (kv && heads % kv)
        return err_set(e, E_CONF, "%lld heads are not a multiple of kv_heads=%lld", (long long)heads, (long long)kv);
    return n->n_in == 1 ? 0 : apart_infer(n, in, heads, kv ? kv : heads, e);
}

/* Scores, and weighted sums of values. */
static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct attention a = attention_of(g, n, 1);
    const int64_t seen = a.causal ? (a.points + 1) / 2 : a.points;
    return 4 * (uint64_t)(a.points * a.heads * a.width) * (uint64_t)seen;
}

static size_t attention_saved(const struct graph *g, const struct node *n, int samples)
{
    const struct attention a = attention_of(g, n, samples);
    return 2 * (size_t)(a.n * a.heads * a.points) * sizeof(float);
}

/* One head of queries of one sample: matrices [width][points]. dq, dk, dv: gradients. */
struct attention_head {
    struct attention a;
    const float *q, *k, *v, *o, *go; float *out, *dq, *dk, *dv, *kept; const int32_t *positions; int64_t points, width;
};

/* head: of queries, of all samples. */
static struct attention_head head_of(const struct op_call *c, const struct attention *a, int64_t head)
{
    const int64_t one = a->width * a->points, n = head / a->heads, q = head % a->heads, kv = q * a->kv_heads / a->heads;
    int64_t at[3];
    for (int i = 0; i < 3; i++)
        at[i] = a->apart ? (i ? n * a->kv_heads + kv : head) * one : ((3 * n + i) * a->heads + q) * one;
    struct attention_head h = {.a = *a, .q = (const float *)c->in[0] + at[0],
                               .k = (const float *)c->in[a->apart ? 1 : 0] + at[1],
                               .v = (const float *)c->in[a->apart ? 2 : 0] + at[2],
                               .kept = (float *)c->saved + 2 * head * a->points, .points = a->points,
                               .width = a->width};
    if (attention_positions(c->node) >= 0) h.positions = (const int32_t *)c->in[3] + n * a->points;
    if (c->out) h.o = h.out = (float *)c->out + head * one;
    if (!c->gout) return h;
    h.go = (const float *)c->gout + head * one;
    float *const gin[3] = {c->gin[0], c->gin[a->apart ? 1 : 0], c->gin[a->apart ? 2 : 0]};
    if (gin[0]) h.dq = gin[0] + at[0];
    if (gin[1]) h.dk = gin[1] + at[1];
    if (gin[2]) h.dv = gin[2] + at[2];
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
    return h->a.scale * product(h, h->q, i, h->k, j);
}

#define SEEN_EACH(h, i, j) \
    for (struct attention_span j##_span = attention_sees(&(h)->a, (h)->positions, i); j##_span.first >= 0; \
         j##_span.first = -1) \
        for (int64_t j = j##_span.first; j <= j##_span.last; j++)

/* Saves the row's largest score and its scale as floats; returns the logarithm of the row's sum. */
static double log_sum(const struct attention_head *h, int64_t i)
{
    double most = score(h, i, i), sum = 0;
    SEEN_EACH(h, i, j) if (score(h, i, j) > most) most = score(h, i, j);
    SEEN_EACH(h, i, j) sum += exp(score(h, i, j) - most);
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
                SEEN_EACH(&h, i, j)
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
        SEEN_EACH(h, i, j) {
            double p = probability(h, i, j);
            tile_add(h, sum, h->a.scale * p * (product(h, h->go, i, h->v, j) - mean), h->k, j, w,
                     tile_size(h->width, w));
        }
        tile_store(h, sum, h->dq, i, w, tile_size(h->width, w));
    }
}

/* Adds a head of queries to the sums of position j of its keys and values, for `some` channels from w on. */
static void key_add(const struct attention_head *h, int64_t j, int64_t w, int some, double key[TILE],
                    double value[TILE])
{
    for (int64_t i = h->a.causal ? j : 0; i < h->points; i++) {
        if (attention_sees(&h->a, h->positions, i).first > j) continue;
        double p = probability(h, i, j), mean = product(h, h->go, i, h->o, i);
        tile_add(h, key, h->a.scale * p * (product(h, h->go, i, h->v, j) - mean), h->q, i, w, some);
        tile_add(h, value, p, h->go, i, w, some);
    }
}

/* n: a head of keys and values, of all samples. The first of its heads of queries tells where its gradients lie. */
static void backward_keys(const struct op_call *c, const struct attention *a, int64_t n)
{
    const int64_t readers = a->heads / a->kv_heads;
    const struct attention_head first = head_of(c, a, n * readers);
    for (int64_t j = 0; j < a->points; j++)
        for (int64_t w = 0; w < a->width; w += TILE) {
            double key[TILE] = {0}, value[TILE] = {0};
            const int some = tile_size(a->width, w);
            for (int64_t r = 0; r < readers; r++) {
                const struct attention_head h = head_of(c, a, n * readers + r);
                key_add(&h, j, w, some, key, value);
            }
            if (first.dk) tile_store(&first, key, first.dk, j, w, some);
            if (first.dv) tile_store(&first, value, first.dv, j, w, some);
        }
}

static void attention_backward_data(const struct op_call *c)
{
    const struct attention a = attention_of(c->g, c->node, c->n);
    for (int64_t n = 0; n < a.n * a.heads; n++) {
        const struct attention_head h = head_of(c, &a, n);
        for (int64_t i = 0; h.dq && i < h.points; i++) backward_query(&h, i);
    }
    for (int64_t n = 0; n < a.n * a.kv_heads; n++) backward_keys(c, &a, n);
}

static const char *const examples[] = {
    "6x5 heads=2", "3x4", "36x3x2 heads=3", "12x2x3x2 heads=4", "24x1 heads=2", "105x37 heads=1",
    "12x7 heads=2 causal=yes", "8x5 + 8x5 + 8x5 heads=2 causal=yes", "12x6 + 4x6 + 4x6 heads=6 kv_heads=2",
    "18x13 + 6x13 + 6x13 + 13 I32 heads=3 kv_heads=1 causal=yes", "4x3 + =0 + =0 heads=2", "48x7 heads=2",
    "32x70 + 16x70 + 16x70 heads=4 kv_heads=2 causal=yes", "16x9 + 16x9 + 16x9 heads=1 causal=yes", NULL};
const struct op_kind op_attention = {
    .name = "attention",
    .text = "attention of all points; channels are queries, keys, values, or these are three inputs",
    .category = OP_ATTENTION,
    .n_in = 1,
    .max_in = 4,
    .takes = {TAKES(F32), TAKES(F32), TAKES(F32), TAKES(I32)},
    .attr = attrs,
    .infer = attention_infer,
    .flops = flops,
    .saved_bytes = attention_saved,
    .need_b = 15 | NEED_OUT | NEED_SAVED,
    .forward = attention_forward,
    .backward_data = attention_backward_data,
    .examples = examples,
};
