/* Causal attention of decoders that generate text, one token a sample. A cache keeps the keys and values of earlier
 * tokens: [slot][position][keys, then values]. A sample is a token of the sequence in `slot`, at `position`: it enters
 * its keys and values, then sees the sequence's entries up to its own. All samples of a call enter first, so several
 * may be tokens of one sequence, which must have entered all positions before. Formulas as in op_attention.c. */
#include "model/ops/cached_attention.h"

static const struct attr_kind attrs[] = {
    [CACHED_HEADS] = {"heads", A_INT, 1, 1, 1 << 16, "how many share the channels"},
    [CACHED_KV_HEADS] = {"kv_heads", A_INT, 0, 0, 1 << 16, "of keys and values, if fewer; 0: as many"},
    [CACHED_CONTEXT] = {"context", A_INT, 0, 1, 1 << 24, "positions of a sequence: they are 0 to context - 1"},
    [CACHED_SLOTS] = {"slots", A_INT, 1, 1, 1 << 16, "sequences at a time"}, {NULL}};

static int cached_attention_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int64_t heads = n->attr[CACHED_HEADS].i[0], kv = n->attr[CACHED_KV_HEADS].i[0],
                  context = n->attr[CACHED_CONTEXT].i[0];
    struct shape keys = *in[0];
    char a[96], b[96];
    if (in[0]->n < 2 || shape_count(in[0]) != in[0]->d[0])
        return err_set(e, E_CONF, "queries %s: expected channels of one position", shape_text(in[0], a));
    if (in[0]->d[0] % heads || (kv && heads % kv))
        return err_set(e, E_CONF, "%lld channels, heads=%lld and kv_heads=%lld do not fit", (long long)in[0]->d[0],
                       (long long)heads, (long long)kv);
    if (context < 1) return err_set(e, E_CONF, "context is missing");
    keys.d[0] = in[0]->d[0] / heads * (kv ? kv : heads);
    for (int i = 1; i < 3; i++)
        if (!shape_equal(in[i], &keys))
            return err_set(e, E_CONF, "%s %s do not fit: expected %s", i == 1 ? "keys" : "values",
                           shape_text(in[i], a), shape_text(&keys, b));
    for (int i = 3; i < 5; i++)
        if (shape_count(in[i]) != 1)
            return err_set(e, E_CONF, "%s %s: expected one", i == 3 ? "positions" : "slots", shape_text(in[i], a));
    f->n_param = 1;
    f->param[0] = (struct infer_param){"cache", {3, {n->attr[CACHED_SLOTS].i[0], context, 2 * keys.d[0]}},
                                       .kind = PARAM_CACHE};
    return 0;
}

static int64_t range(const struct graph *g, const struct node *n, int in)
{
    return in == 3 ? n->attr[CACHED_CONTEXT].i[0] : in == 4 ? n->attr[CACHED_SLOTS].i[0] : 0;
}

/* Of a sequence in the middle of the context. */
static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct cached_attention a = cached_attention_of(g, n);
    return 4 * (uint64_t)(a.heads * a.width) * (uint64_t)((a.context + 1) / 2);
}

static double score(const struct cached_attention *a, const float *q, const float *key)
{
    double sum = 0;
    for (int64_t w = 0; w < a->width; w++) sum += (double)q[w] * key[w];
    return a->scale * sum;
}

/* One head of queries; keys, values: of its head of keys, entries a->line floats apart. */
static void head_forward(const struct cached_attention *a, const float *q, const float *keys, const float *values,
                         int64_t position, float *out)
{
    double most = score(a, q, keys), sum = 0;
    for (int64_t j = 1; j <= position; j++) {
        const double s = score(a, q, keys + j * a->line);
        if (s > most) most = s;
    }
    for (int64_t j = 0; j <= position; j++) sum += exp(score(a, q, keys + j * a->line) - most);
    for (int64_t w = 0; w < a->width; w++) {
        double y = 0;
        for (int64_t j = 0; j <= position; j++)
            y += exp(score(a, q, keys + j * a->line) - most) * values[j * a->line + w];
        out[w] = (float)(y / sum);
    }
}

static void cached_attention_forward(const struct op_call *c)
{
    const struct cached_attention a = cached_attention_of(c->g, c->node);
    for (int64_t n = 0; n < c->n; n++) cached_attention_enter(&a, c->in, n, c->param[0]);
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t h = 0; h < a.heads; h++) {
            const float *keys = cached_attention_keys(&a, c->in, n, h, c->param[0]);
            const int64_t at = (n * a.heads + h) * a.width;
            head_forward(&a, (const float *)c->in[0] + at, keys, keys + a.line / 2,
                         ((const int32_t *)c->in[3])[n], (float *)c->out + at);
        }
}

static const char *const examples[] = {
    "6x1 + 6x1 + 6x1 + 1 I32 + 1 I32 heads=2 context=5 slots=3",
    "12x1 + 4x1 + 4x1 + 1 I32 + 1 I32 heads=6 kv_heads=2 context=17",
    "144x1 + 48x1 + 48x1 + 1 I32 + 1 I32 heads=3 kv_heads=1 context=70 slots=2", NULL};
const struct op_kind op_cached_attention = {
    .name = "cached_attention",
    .text = "attention of one token a sample to the tokens before it, whose keys and values a cache keeps",
    .n_in = 5,
    .takes = {TAKES(F32), TAKES(F32), TAKES(F32), TAKES(I32), TAKES(I32)},
    .attr = attrs,
    .infer = cached_attention_infer,
    .range = range,
    .flops = flops,
    .forward = cached_attention_forward,
    .examples = examples,
};
