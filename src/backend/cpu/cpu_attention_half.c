/* Attention in bf16 on tokens as rows: products in bf16 with sums in float; scores, softmax and its gradient in float.
 *
 * Some queries at a time have their scores with all keys that they see in a matrix. Products are own ones by AMX; or
 * the library's, by tiles of at most TILE keys, so that they have few shapes. Gradients of keys and values add up in
 * float, over the queries from the last to the first and over the heads that share them, and are rounded once. */
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"
#include "model/ops/attention.h"

enum { ROWS = 256, ROWS_CAUSAL = 128, TILE = 256, LINE = 32 };
enum product_kind { SCORES, OUTPUT, TO_VALUES, TO_SCORES, TO_QUERIES, TO_KEYS };

/* Scores and their gradients, the same in bf16; a result of the queries; gradients of keys and values; what each
 * query sees. */
struct attention_space { size_t p, dp, p16, dp16, rows, keys, values, spans, scratch, all; };
/* rows: queries at a time. line: of the matrices of scores. tile: the most keys of a product. space: of a thread. */
struct attention_half {
    struct be_kernel base; struct attention a; bool amx; int64_t rows, line, tile; struct attention_space space;
};

/* Distances of rows: of queries, keys, values, output. */
static int64_t line_of(const struct attention *a, int which)
{
    const int64_t all = a->heads * a->width;
    if (which == 3) return all;
    return a->apart ? which ? a->kv_heads * a->width : all : 3 * all;
}

static struct half_shape tile_shape(const struct attention_half *of, enum product_kind kind, int64_t rows, int64_t n,
                                    bool first)
{
    const struct attention *a = &of->a;
    const int64_t w = a->width, t = of->line, q = line_of(a, 0), k = line_of(a, 1), v = line_of(a, 2),
                  o = line_of(a, 3);
    switch (kind) {
    case SCORES: return (struct half_shape){rows, n, w, {'N', q}, {'T', k}, t, .wide = true};
    case TO_SCORES: return (struct half_shape){rows, n, w, {'N', o}, {'T', v}, t, .wide = true};
    case OUTPUT: return (struct half_shape){rows, w, n, {'N', t}, {'N', v}, w, .wide = true, .acc = !first};
    case TO_QUERIES: return (struct half_shape){rows, w, n, {'N', t}, {'N', k}, w, .wide = true, .acc = !first};
    case TO_VALUES: return (struct half_shape){n, w, rows, {'T', t}, {'N', o}, w, .wide = true, .acc = true};
    default: return (struct half_shape){n, w, rows, {'T', t}, {'N', q}, w, .wide = true, .acc = true};
    }
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

static size_t scratch_bytes(const struct attention_half *k, int threads)
{
    const int64_t w = k->a.width, sizes[3][3] = {{k->rows, k->tile, w}, {k->rows, w, k->tile}, {k->tile, w, k->rows}};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t *s = sizes[i];
        const size_t bytes = k->amx ? amx_half_work(s[1], s[2]) : half_scratch(s[0], s[1], s[2], threads);
        most = bytes > most ? bytes : most;
    }
    return size_align64(most);
}

static struct attention_space space_of(const struct attention_half *k, int threads)
{
    const size_t scores = (size_t)(k->rows * k->line) * sizeof(float), head =
                 size_align64((size_t)(k->a.points * k->a.width) * sizeof(float));
    struct attention_space s = {.dp = scores, .p16 = 2 * scores};
    s.dp16 = s.p16 + scores / 2;
    s.rows = s.dp16 + scores / 2;
    s.keys = s.rows + size_align64((size_t)(k->rows * k->a.width) * sizeof(float));
    s.values = s.keys + head;
    s.spans = s.values + head;
    s.scratch = s.spans + (size_t)k->rows * sizeof(struct vec_span);
    s.all = s.scratch + scratch_bytes(k, threads);
    return s;
}

static void sizes_set(struct attention_half *k, const struct attention *a, bool amx, int threads)
{
    k->a = *a;
    k->amx = amx;
    k->rows = a->causal ? ROWS_CAUSAL : ROWS;
    k->line = (a->points + LINE - 1) / LINE * LINE;
    k->tile = amx ? a->points : TILE;
    k->space = space_of(k, threads);
}

/* The library's products have threads of their own; else the heads have. */
static int head_threads(const struct attention_half *k, int threads) { return k->amx ? threads : 1; }

/* ---- a head ------------------------------------------------------------------------------------------------------ */

struct half_head_matrix { const uint16_t *at; uint16_t *grad; int64_t line; bool add; };
/* One head of queries of a sample, and its queries from `from` on, which see keys up to `keys`. */
struct half_head {
    const struct attention_half *k;
    struct half_head_matrix q, key, v;
    const uint16_t *go; uint16_t *out, *p16, *dp16;
    float *kept, *p, *dp, *sum, *to_keys, *to_values;
    struct vec_span *span;
    const int32_t *positions;
    void *scratch;
    int64_t from, rows, keys;
    bool opens, closes;                                   /* the first, the last of the heads that share keys */
};

static struct half_head_matrix half_matrix_of(const struct attention_half *k, const struct be_call *c, int which,
                                              int64_t n, int64_t head)
{
    const struct attention *a = &k->a;
    const int in = a->apart ? which : 0;
    const int64_t line = line_of(a, which),
                  at = n * a->points * line + (a->apart ? 0 : which * a->heads * a->width) + head * a->width;
    return (struct half_head_matrix){(const uint16_t *)c->in[in] + at,
                                     c->gin[in] ? (uint16_t *)c->gin[in] + at : NULL, line, c->gin_acc >> in & 1};
}

static struct half_head head_of(const struct attention_half *k, const struct be_call *c, int64_t i, char *work)
{
    const struct attention *a = &k->a;
    const struct attention_space s = k->space;
    const int64_t n = i / a->heads, head = i % a->heads, share = a->heads / a->kv_heads, kv = head / share,
                  at = n * a->points * line_of(a, 3) + head * a->width;
    struct half_head t = {.k = k, .q = half_matrix_of(k, c, 0, n, head), .key = half_matrix_of(k, c, 1, n, kv),
                          .v = half_matrix_of(k, c, 2, n, kv), .kept = (float *)c->saved + 2 * i * a->points,
                          .p = (float *)(work + s.p), .dp = (float *)(work + s.dp), .p16 = (uint16_t *)(work + s.p16),
                          .dp16 = (uint16_t *)(work + s.dp16), .sum = (float *)(work + s.rows),
                          .to_keys = (float *)(work + s.keys), .to_values = (float *)(work + s.values),
                          .span = (struct vec_span *)(work + s.spans), .scratch = work + s.scratch,
                          .opens = head % share == 0, .closes = head % share == share - 1};
    if (attention_positions(k->base.node) >= 0) t.positions = (const int32_t *)c->in[3] + n * a->points;
    if (k->base.key.phase == PH_FWD) t.out = (uint16_t *)c->out + at;
    else t.go = (const uint16_t *)c->gout + at;
    return t;
}

/* The product of a kind for all tiles of keys. A tile's matrix of scores, or of keys, begins at its first key. */
static int tiles_run(struct be *b, const struct half_head *t, enum product_kind kind, struct err *e)
{
    const struct attention *a = &t->k->a;
    const uint16_t *q = t->q.at + t->from * t->q.line, *go = t->go + (t->go ? t->from * line_of(a, 3) : 0);
    for (int64_t at = 0; at < t->keys; at += t->k->tile) {
        const int64_t n = t->keys - at < t->k->tile ? t->keys - at : t->k->tile;
        const uint16_t *key = t->key.at + at * t->key.line, *v = t->v.at + at * t->v.line;
        const struct half_shape shape = tile_shape(t->k, kind, t->rows, n, !at);
        struct half_call c = {.scratch = t->scratch};
        switch (kind) {
        case SCORES: c.a = q; c.b = key; c.c = t->p + at; break;
        case TO_SCORES: c.a = go; c.b = v; c.c = t->dp + at; break;
        case OUTPUT: c.a = t->p16 + at; c.b = v; c.c = t->sum; break;
        case TO_QUERIES: c.a = t->dp16 + at; c.b = key; c.c = t->sum; break;
        case TO_VALUES: c.a = t->p16 + at; c.b = go; c.c = t->to_values + at * a->width; break;
        default: c.a = t->dp16 + at; c.b = q; c.c = t->to_keys + at * a->width; break;
        }
        if (t->k->amx) { amx_half_run(&shape, &c); continue; }
        struct half_product *p = half_shared(b, &shape, scratch_bytes(t->k, b->s->dev.threads), e);
        if (!p || half_run(b, p, &c, e)) return -1;
    }
    return 0;
}

static struct vec_scores half_scores_of(const struct half_head *t)
{
    const struct attention *a = &t->k->a;
    for (int64_t r = 0; r < t->rows; r++) {
        const struct attention_span s = attention_sees(a, t->positions, t->from + r);
        t->span[r] = (struct vec_span){s.first, s.last + 1};
    }
    return (struct vec_scores){t->rows, t->keys, (float)a->scale, NULL, NULL, a->width, {1, 0}, {1, 0},
                               a->causal ? t->span : NULL, t->k->line};
}

/* rows of `width` floats to rows of a tensor. */
static void rows_narrow(const struct half_head *t, const float *x, int64_t rows, uint16_t *to, int64_t line, bool add)
{
    const int64_t width = t->k->a.width;
    for (int64_t r = 0; r < rows; r++) vec_half.narrow(to + r * line, x + r * width, (size_t)width, add);
}

/* Rows of scores to bf16: the first `keys` of each count. */
static void scores_narrow(const struct half_head *t, const float *x, uint16_t *to)
{
    const int64_t line = t->k->line;
    for (int64_t r = 0; r < t->rows; r++) vec_half.narrow(to + r * line, x + r * line, (size_t)t->keys, false);
}

static int half_forward_part(struct be *b, const struct half_head *t, struct err *e)
{
    const struct vec_scores s = half_scores_of(t);
    const int64_t line = line_of(&t->k->a, 3);
    if (tiles_run(b, t, SCORES, e)) return -1;
    b->vec->softmax(&s, t->p, t->kept + 2 * t->from);
    scores_narrow(t, t->p, t->p16);
    if (tiles_run(b, t, OUTPUT, e)) return -1;
    rows_narrow(t, t->sum, t->rows, t->out + t->from * line, line, false);
    return 0;
}

/* Only the gradients that are wanted. */
static int half_backward_part(struct be *b, const struct half_head *t, struct err *e)
{
    const struct vec_scores s = half_scores_of(t);
    if (tiles_run(b, t, SCORES, e)) return -1;
    b->vec->softmax_again(&s, t->p, t->kept + 2 * t->from);
    scores_narrow(t, t->p, t->p16);
    if (t->v.grad && tiles_run(b, t, TO_VALUES, e)) return -1;
    if (!t->q.grad && !t->key.grad) return 0;
    if (tiles_run(b, t, TO_SCORES, e)) return -1;
    b->vec->softmax_backward(&s, t->p, t->dp);
    scores_narrow(t, t->dp, t->dp16);
    if (t->key.grad && tiles_run(b, t, TO_KEYS, e)) return -1;
    if (!t->q.grad) return 0;
    if (tiles_run(b, t, TO_QUERIES, e)) return -1;
    rows_narrow(t, t->sum, t->rows, t->q.grad + t->from * t->q.line, t->q.line, t->q.add);
    return 0;
}

static int head_run(struct be *b, struct half_head *t, struct err *e)
{
    const int64_t points = t->k->a.points, width = t->k->a.width, rows = t->k->rows;
    const bool forward = t->k->base.key.phase == PH_FWD;
    if (!forward && t->opens) {
        memset(t->to_keys, 0, (size_t)(points * width) * sizeof(float));
        memset(t->to_values, 0, (size_t)(points * width) * sizeof(float));
    }
    for (t->from = (points - 1) / rows * rows; t->from >= 0; t->from -= rows) {
        const int64_t to = t->from + rows < points ? t->from + rows : points;
        t->rows = to - t->from;
        t->keys = t->k->a.causal ? to : points;
        if (forward ? half_forward_part(b, t, e) : half_backward_part(b, t, e)) return -1;
    }
    if (forward || !t->closes) return 0;
    if (t->key.grad) rows_narrow(t, t->to_keys, points, t->key.grad, t->key.line, t->key.add);
    if (t->v.grad) rows_narrow(t, t->to_values, points, t->v.grad, t->v.line, t->v.add);
    return 0;
}

/* All heads; an error comes only from the library's products, which one thread calls. */
struct heads { struct be *b; const struct attention_half *k; const struct be_call *c; int *bad; struct err *e; };

/* A unit is the heads of a sample that share keys. */
static void heads_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct heads *h = data;
    const int64_t share = h->k->a.heads / h->k->a.kv_heads;
    char *work = (char *)h->c->work + (size_t)thread * h->k->space.all;
    for (int64_t i = from * share; i < to * share && !*h->bad; i++) {
        struct half_head t = head_of(h->k, h->c, i, work);
        if (head_run(h->b, &t, h->e)) *h->bad = -1;
    }
}

static int attention_half_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct attention_half *k = (const struct attention_half *)base;
    int bad = 0;
    cpu_each(head_threads(k, b->s->dev.threads), k->a.n * k->a.kv_heads, heads_run, &(struct heads){b, k, c, &bad, e});
    return bad;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* All products that a call will need. */
static int products_find(struct be *b, const struct attention_half *k, struct err *e)
{
    const bool forward = k->base.key.phase == PH_FWD;
    const struct attention *a = &k->a;
    for (int64_t from = 0; from < a->points; from += k->rows) {
        const int64_t to = from + k->rows < a->points ? from + k->rows : a->points, keys = a->causal ? to : a->points;
        for (int64_t at = 0; at < keys; at += TILE)
            for (int kind = SCORES; kind <= TO_KEYS; kind++) {
                const struct half_shape s = tile_shape(k, (enum product_kind)kind, to - from,
                                                       keys - at < TILE ? keys - at : TILE, !at);
                const bool needed = kind == SCORES || forward == (kind == OUTPUT);
                if (needed && !half_shared(b, &s, scratch_bytes(k, b->s->dev.threads), e)) return -1;
            }
    }
    return 0;
}

static struct be_kernel *attention_make(struct be *b, const struct be_kernel *like, bool amx, struct err *e)
{
    const struct attention a = attention_of(b->g, like->node, like->key.samples);
    struct attention_half *k = kernel_new(like, sizeof *k);
    sizes_set(k, &a, amx, b->s->dev.threads);
    k->base.run = attention_half_run;
    const size_t bytes = k->space.all * (size_t)head_threads(k, b->s->dev.threads);
    if ((amx || !products_find(b, k, e)) && !kernel_workspace(b, like, bytes, e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static struct be_kernel *attention_half_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return attention_make(b, like, false, e);
}

static struct be_kernel *attention_amx_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (amx_ready()) return attention_make(b, like, true, e);
    err_set(e, E_CONF, "the system gives no AMX registers");
    return NULL;
}

static size_t attention_work(const struct selection *s, const struct group *k, bool amx)
{
    const struct attention a = attention_of(s->g, group_node(s, k), 1);
    struct attention_half of;
    sizes_set(&of, &a, amx, s->dev.threads);
    return CPU_WORK + of.space.all * (size_t)head_threads(&of, s->dev.threads);
}

static size_t attention_half_workspace(const struct selection *s, const struct group *k)
{
    return attention_work(s, k, false);
}

static size_t attention_amx_workspace(const struct selection *s, const struct group *k)
{
    return attention_work(s, k, true);
}

static const char *attention_half_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !graph_generates(s->g) ? cpu_attention_rows_refuse(s, k, ph) : "";
}

static const char *attention_amx_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !strcmp(s->dev.bf16, "amx_bf16") ? attention_half_refuses(s, k, ph) : "";
}

const struct kernel_row cpu_rows_attention_half[] = {
    {.name = "amx", .pattern = PATTERN_OP("attention"), .types = TAKES(BF16), .cost = 0.4,
     .layouts = ROW_LAYOUT(LAYOUT_LAST), .refuses = attention_amx_refuses, .workspace = attention_amx_workspace,
     .asks = true, .make = attention_amx_make},
    {.name = "bf16", .pattern = PATTERN_OP("attention"), .types = TAKES(BF16), .cost = 0.5,
     .layouts = ROW_LAYOUT(LAYOUT_LAST), .refuses = attention_half_refuses, .workspace = attention_half_workspace,
     .asks = true, .make = attention_half_make},
    {0}};
