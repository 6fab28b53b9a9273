/* Attention in bf16 on tokens as rows: products in bf16 with sums in float; scores, softmax and its gradient in float.
 *
 * Some queries at a time have their scores with all keys that they see in a matrix, which is made by tiles of at most
 * TILE keys, so that products have few shapes. Gradients of keys and values add up in float, over the queries from the
 * last to the first and over the heads that share them, and are rounded once. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"
#include "model/ops/attention.h"

enum { ROWS = 64, TILE = 256 };
enum product_kind { SCORES, OUTPUT, TO_VALUES, TO_SCORES, TO_QUERIES, TO_KEYS };

struct attention_half { struct be_kernel base; struct attention a; struct vec_span *span; };

/* Distances of rows: of queries, keys, values, output. */
static int64_t line_of(const struct attention *a, int which)
{
    const int64_t all = a->heads * a->width;
    if (which == 3) return all;
    return a->apart ? which ? a->kv_heads * a->width : all : 3 * all;
}

static struct half_shape tile_shape(const struct attention *a, enum product_kind kind, int64_t rows, int64_t n,
                                    bool first)
{
    const int64_t w = a->width, t = a->points, q = line_of(a, 0), k = line_of(a, 1), v = line_of(a, 2),
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

/* Scores and their gradients, the same in bf16; a result of the queries; gradients of keys and values. */
struct attention_space { size_t p, dp, p16, dp16, rows, keys, values, scratch, all; };

static size_t scratch_bytes(const struct attention *a, int threads)
{
    const size_t s = half_scratch(ROWS, TILE, a->width, threads), w = half_scratch(ROWS, a->width, TILE, threads),
                 k = half_scratch(TILE, a->width, ROWS, threads);
    return s > w ? s > k ? s : k : w > k ? w : k;
}

static struct attention_space space_of(const struct attention *a, int threads)
{
    const size_t scores = size_align64((size_t)(ROWS * a->points) * sizeof(float)), head =
                 size_align64((size_t)(a->points * a->width) * sizeof(float));
    struct attention_space s = {.dp = scores, .p16 = 2 * scores};
    s.dp16 = s.p16 + scores;
    s.rows = s.dp16 + scores;
    s.keys = s.rows + size_align64((size_t)(ROWS * a->width) * sizeof(float));
    s.values = s.keys + head;
    s.scratch = s.values + head;
    s.all = s.scratch + scratch_bytes(a, threads);
    return s;
}

/* ---- a head ------------------------------------------------------------------------------------------------------ */

struct half_head_matrix { const uint16_t *at; uint16_t *grad; int64_t line; bool add; };
/* One head of queries of a sample, and its queries from `from` on, which see keys up to `keys`. */
struct half_head {
    const struct attention_half *k;
    struct half_head_matrix q, key, v;
    const uint16_t *go; uint16_t *out, *p16, *dp16;
    float *kept, *p, *dp, *sum, *to_keys, *to_values;
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

static struct half_head head_of(const struct attention_half *k, const struct be_call *c, int64_t i)
{
    const struct attention *a = &k->a;
    const struct attention_space s = space_of(a, 1);
    const int64_t n = i / a->heads, head = i % a->heads, share = a->heads / a->kv_heads, kv = head / share,
                  at = n * a->points * line_of(a, 3) + head * a->width;
    char *work = c->work;
    struct half_head t = {.k = k, .q = half_matrix_of(k, c, 0, n, head), .key = half_matrix_of(k, c, 1, n, kv),
                          .v = half_matrix_of(k, c, 2, n, kv), .kept = (float *)c->saved + 2 * i * a->points,
                          .p = (float *)(work + s.p), .dp = (float *)(work + s.dp), .p16 = (uint16_t *)(work + s.p16),
                          .dp16 = (uint16_t *)(work + s.dp16), .sum = (float *)(work + s.rows),
                          .to_keys = (float *)(work + s.keys), .to_values = (float *)(work + s.values),
                          .scratch = work + s.scratch, .opens = head % share == 0, .closes = head % share == share - 1};
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
    for (int64_t at = 0; at < t->keys; at += TILE) {
        const int64_t n = t->keys - at < TILE ? t->keys - at : TILE;
        const uint16_t *key = t->key.at + at * t->key.line, *v = t->v.at + at * t->v.line;
        const struct half_shape shape = tile_shape(a, kind, t->rows, n, !at);
        struct half_call c = {.scratch = t->scratch};
        switch (kind) {
        case SCORES: c.a = q; c.b = key; c.c = t->p + at; break;
        case TO_SCORES: c.a = go; c.b = v; c.c = t->dp + at; break;
        case OUTPUT: c.a = t->p16 + at; c.b = v; c.c = t->sum; break;
        case TO_QUERIES: c.a = t->dp16 + at; c.b = key; c.c = t->sum; break;
        case TO_VALUES: c.a = t->p16 + at; c.b = go; c.c = t->to_values + at * a->width; break;
        default: c.a = t->dp16 + at; c.b = q; c.c = t->to_keys + at * a->width; break;
        }
        struct half_product *p = half_shared(b, &shape, scratch_bytes(a, b->s->dev.threads), e);
        if (!p || half_run(b, p, &c, e)) return -1;
    }
    return 0;
}

static struct vec_scores half_scores_of(const struct half_head *t)
{
    const struct attention *a = &t->k->a;
    for (int64_t r = 0; r < t->rows; r++) {
        const struct attention_span s = attention_sees(a, t->positions, t->from + r);
        t->k->span[r] = (struct vec_span){s.first, s.last + 1};
    }
    return (struct vec_scores){t->rows, t->keys, (float)a->scale, NULL, NULL, a->width, {1, 0}, {1, 0},
                               a->causal ? t->k->span : NULL, a->points};
}

/* rows of `width` floats to rows of a tensor. */
static void rows_narrow(const struct be *b, const struct half_head *t, const float *x, int64_t rows,
                        uint16_t *to, int64_t line, bool add)
{
    const int64_t width = t->k->a.width;
    for (int64_t r = 0; r < rows; r++) b->vec->narrow(to + r * line, x + r * width, (size_t)width, add);
}

/* Rows of scores to bf16: the matrices have rows of all points, of which the first `keys` count. */
static void scores_narrow(const struct be *b, const struct half_head *t, const float *x, uint16_t *to)
{
    const int64_t line = t->k->a.points;
    for (int64_t r = 0; r < t->rows; r++) b->vec->narrow(to + r * line, x + r * line, (size_t)t->keys, false);
}

static int half_forward_part(struct be *b, const struct half_head *t, struct err *e)
{
    const struct vec_scores s = half_scores_of(t);
    const int64_t line = line_of(&t->k->a, 3);
    if (tiles_run(b, t, SCORES, e)) return -1;
    b->vec->softmax(&s, t->p, t->kept + 2 * t->from);
    scores_narrow(b, t, t->p, t->p16);
    if (tiles_run(b, t, OUTPUT, e)) return -1;
    rows_narrow(b, t, t->sum, t->rows, t->out + t->from * line, line, false);
    return 0;
}

static int half_backward_part(struct be *b, const struct half_head *t, struct err *e)
{
    const struct vec_scores s = half_scores_of(t);
    if (tiles_run(b, t, SCORES, e)) return -1;
    b->vec->softmax_again(&s, t->p, t->kept + 2 * t->from);
    scores_narrow(b, t, t->p, t->p16);
    if (tiles_run(b, t, TO_VALUES, e) || tiles_run(b, t, TO_SCORES, e)) return -1;
    b->vec->softmax_backward(&s, t->p, t->dp);
    scores_narrow(b, t, t->dp, t->dp16);
    if (tiles_run(b, t, TO_QUERIES, e) || tiles_run(b, t, TO_KEYS, e)) return -1;
    rows_narrow(b, t, t->sum, t->rows, t->q.grad + t->from * t->q.line, t->q.line, t->q.add);
    return 0;
}

static int attention_half_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct attention_half *k = (const struct attention_half *)base;
    const int64_t points = k->a.points, last = (points - 1) / ROWS * ROWS;
    const bool forward = base->key.phase == PH_FWD;
    for (int64_t i = 0; i < k->a.n * k->a.heads; i++) {
        struct half_head t = head_of(k, c, i);
        if (!forward && t.opens) {
            memset(t.to_keys, 0, (size_t)(points * k->a.width) * sizeof(float));
            memset(t.to_values, 0, (size_t)(points * k->a.width) * sizeof(float));
        }
        for (t.from = last; t.from >= 0; t.from -= ROWS) {
            const int64_t to = t.from + ROWS < points ? t.from + ROWS : points;
            t.rows = to - t.from;
            t.keys = k->a.causal ? to : points;
            if (forward ? half_forward_part(b, &t, e) : half_backward_part(b, &t, e)) return -1;
        }
        if (forward || !t.closes) continue;
        rows_narrow(b, &t, t.to_keys, points, t.key.grad, t.key.line, t.key.add);
        rows_narrow(b, &t, t.to_values, points, t.v.grad, t.v.line, t.v.add);
    }
    return 0;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void attention_half_close(struct be_kernel *base) { free(((struct attention_half *)base)->span); }

/* All products that a call will need. */
static int products_find(struct be *b, const struct attention_half *k, struct err *e)
{
    const bool forward = k->base.key.phase == PH_FWD;
    const struct attention *a = &k->a;
    for (int64_t from = 0; from < a->points; from += ROWS) {
        const int64_t to = from + ROWS < a->points ? from + ROWS : a->points, keys = a->causal ? to : a->points;
        for (int64_t at = 0; at < keys; at += TILE)
            for (int kind = SCORES; kind <= TO_KEYS; kind++) {
                const struct half_shape s = tile_shape(a, (enum product_kind)kind, to - from,
                                                       keys - at < TILE ? keys - at : TILE, !at);
                const bool needed = kind == SCORES || forward == (kind == OUTPUT);
                if (needed && !half_shared(b, &s, scratch_bytes(a, b->s->dev.threads), e)) return -1;
            }
    }
    return 0;
}

static struct be_kernel *attention_half_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct attention_half *k = kernel_new(like, sizeof *k);
    k->a = attention_of(b->g, like->node, like->key.samples);
    k->span = mem_alloc(ROWS * sizeof *k->span);
    k->base.run = attention_half_run;
    k->base.close = attention_half_close;
    const size_t bytes = space_of(&k->a, b->s->dev.threads).all;
    if (!products_find(b, k, e) && !kernel_workspace(b, like, bytes, e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t attention_half_workspace(const struct selection *s, const struct group *k)
{
    const struct attention a = attention_of(s->g, group_node(s, k), 1);
    return CPU_WORK + space_of(&a, s->dev.threads).all;
}

static const char *attention_half_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !graph_generates(s->g) ? cpu_attention_rows_refuse(s, k, ph) : "";
}

const struct kernel_row cpu_rows_attention_half[] = {
    {.name = "bf16", .pattern = PATTERN_OP("attention"), .types = TAKES(BF16), .cost = 0.5,
     .layouts = ROW_LAYOUT(LAYOUT_LAST), .refuses = attention_half_refuses, .workspace = attention_half_workspace,
     .asks = true, .make = attention_half_make},
    {0}};
