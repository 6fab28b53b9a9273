/* Attention on tokens as rows: a head's queries, keys and values are columns of the rows, so its matrices are
 * [position][width] with a distance between rows. Products are own loops (cpu_product.h) where the width fills blocks:
 * keys and values get copies as panels for each head. Others are oneDNN's sgemm.
 *
 * Some queries at a time have their scores with all keys that they may see in a matrix, which stays in the cache. The
 * number of queries is a function of the number of points alone. Gradients of keys and values add up from the last
 * queries, which see all keys, to the first. */
#include <stdlib.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_product.h"
#include "model/ops/attention.h"

/* own NULL: sgemm */
struct rows_kernel {
    struct be_kernel base; struct attention a; int64_t rows; struct vec_span *span; const struct product_ops *own;
};

/* Two matrices of queries by keys: scores, and their gradients. */
enum { SCORES_BYTES = 512 << 10, CAUSAL_ROWS = 64 };
static int64_t rows_of(const struct attention *a)
{
    int64_t rows = SCORES_BYTES / (int64_t)sizeof(float) / a->points;
    if (a->causal && rows > CAUSAL_ROWS) rows = CAUSAL_ROWS;
    return rows < 1 ? 1 : rows < a->points ? rows : a->points;
}
/* Keys as stored in a matrix of scores: whole blocks. */
enum { BLOCK_MOST = 16 };
static int64_t keys_up(int64_t keys) { return (keys + BLOCK_MOST - 1) / BLOCK_MOST * BLOCK_MOST; }
static size_t scores_work(const struct attention *a)
{
    return 2 * size_align64((size_t)(rows_of(a) * keys_up(a->points)) * sizeof(float));
}
/* Panels of a head's keys turned, of its values (turned in the backward pass), of its keys. */
enum { PANELS = 3 };
static size_t panels_size(const struct attention *a) { return (size_t)(keys_up(a->points) * a->width); }
static size_t thread_work(const struct attention *a)
{
    return scores_work(a) + PANELS * size_align64(panels_size(a) * sizeof(float));
}

/* A matrix of a head: its rows are `line` floats apart. */
struct head_matrix { const float *at; float *grad; int64_t line; bool add; };
/* One head of queries of a sample, and its queries from `from` on, which see keys up to `keys`. */
struct head_part {
    const struct rows_kernel *k;
    struct head_matrix q, key, v;
    const float *go;
    float *out, *kept, *p, *dp, *panels[PANELS];
    struct vec_span *span;
    const int32_t *positions;
    int64_t from, rows, keys, line;                      /* line: from row to row of scores */
};

static struct head_matrix matrix_of(const struct rows_kernel *k, const struct be_call *c, int which, int64_t n,
                                    int64_t head)
{
    const struct attention *a = &k->a;
    const int in = a->apart ? which : 0;
    const int64_t line = a->apart ? (which ? a->kv_heads : a->heads) * a->width : 3 * a->heads * a->width,
                  at = n * a->points * line + (a->apart ? 0 : which * a->heads * a->width) + head * a->width;
    return (struct head_matrix){(const float *)c->in[in] + at, c->gin[in] ? (float *)c->gin[in] + at : NULL, line,
                                c->gin_acc >> in & 1};
}

/* The first head of queries of a group begins the gradients of keys and values, the others add. */
static struct head_part part_of(const struct rows_kernel *k, const struct be_call *c, int64_t i, int thread)
{
    const struct attention *a = &k->a;
    const int64_t n = i / a->heads, head = i % a->heads, share = a->heads / a->kv_heads, kv = head / share,
                  all = a->heads * a->width;
    struct head_part t = {.k = k, .q = matrix_of(k, c, 0, n, head), .key = matrix_of(k, c, 1, n, kv),
                          .v = matrix_of(k, c, 2, n, kv), .kept = (float *)c->saved + 2 * i * a->points,
                          .p = (float *)((char *)c->work + (size_t)thread * thread_work(a)),
                          .span = k->span + thread * k->rows};
    t.key.add |= head % share > 0;
    t.v.add |= head % share > 0;
    t.dp = t.p + scores_work(a) / 2 / sizeof(float);
    for (size_t j = 0; j < PANELS; j++)
        t.panels[j] = t.p + (scores_work(a) + j * size_align64(panels_size(a) * sizeof(float))) / sizeof(float);
    if (attention_positions(k->base.node) >= 0) t.positions = (const int32_t *)c->in[3] + n * a->points;
    if (k->base.key.phase == PH_FWD) t.out = (float *)c->out + n * a->points * all + head * a->width;
    else t.go = (const float *)c->gout + n * a->points * all + head * a->width;
    return t;
}

/* Which keys each query of the part sees. */
static struct vec_scores scores_of(const struct head_part *t)
{
    const struct attention *a = &t->k->a;
    for (int64_t r = 0; r < t->rows; r++) {
        const struct attention_span s = attention_sees(a, t->positions, t->from + r);
        t->span[r] = (struct vec_span){s.first, s.last + 1};
    }
    return (struct vec_scores){t->rows, t->keys, (float)a->scale, t->q.at + t->from * t->q.line, t->key.at, a->width,
                               {1, t->q.line}, {1, t->key.line}, a->causal ? t->span : NULL, t->line};
}

/* ---- products -------------------------------------------------------------------------------- */

/* Panels of the head's keys and values, for all of its queries. */
static void panels_make(const struct head_part *t)
{
    const struct product_ops *own = t->k->own;
    const struct attention *a = &t->k->a;
    const int64_t turned = a->width * own->block, apart = a->points * own->block;
    const bool forward = t->k->base.key.phase == PH_FWD;
    own->panels_turned(t->key.at, t->key.line, a->points, a->width, t->panels[0], turned);
    if (forward) own->panels(t->v.at, t->v.line, a->width, a->points, t->panels[1], apart);
    else own->panels_turned(t->v.at, t->v.line, a->points, a->width, t->panels[1], turned);
    if (!forward) own->panels(t->key.at, t->key.line, a->width, a->points, t->panels[2], apart);
}

/* p[rows][keys] = a[rows][width] times the keys or values, turned. */
static int over_width(const struct head_part *t, const float *a, int64_t line, const struct head_matrix *b,
                      const float *panels, float *p, struct err *e)
{
    const struct product_ops *own = t->k->own;
    const int64_t width = t->k->a.width;
    if (!own)
        return matmul_run((struct matmul){t->rows, t->keys, width, {'N', a, line}, {'T', b->at, b->line}}, p, t->line,
                          e);
    const struct product_rows r = {t->rows, (t->keys + own->block - 1) / own->block * own->block, width, a, line, NULL,
                                   p, t->line, false};
    own->rows(&r, panels, width * own->block);
    return 0;
}

/* c[rows][width] = or += (add) p[rows][keys] times the keys or values. */
static int over_keys(const struct head_part *t, const float *p, const struct head_matrix *b, const float *panels,
                     float *c, int64_t line, bool add, struct err *e)
{
    const struct product_ops *own = t->k->own;
    const int64_t width = t->k->a.width;
    if (!own)
        return matmul_run((struct matmul){t->rows, width, t->keys, {'N', p, t->line}, {'N', b->at, b->line}, add}, c,
                          line, e);
    own->rows(&(struct product_rows){t->rows, width, t->keys, p, t->line, NULL, c, line, add}, panels,
              t->k->a.points * own->block);
    return 0;
}

/* The gradient of keys or values = or += (add) p turned, times b[rows][width]. */
static int over_rows(const struct head_part *t, const float *p, const float *b, int64_t line,
                     const struct head_matrix *to, bool add, struct err *e)
{
    const struct product_ops *own = t->k->own;
    const int64_t width = t->k->a.width;
    if (!own)
        return matmul_run((struct matmul){t->keys, width, t->rows, {'T', p, t->line}, {'N', b, line}, add}, to->grad,
                          to->line, e);
    own->outer(&(struct product_rows){t->keys, width, t->rows, p, t->line, NULL, to->grad, to->line, add}, b, line);
    return 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int forward_part(struct be *b, const struct head_part *t, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    const int64_t line = t->k->a.heads * t->k->a.width;
    if (over_width(t, t->q.at + t->from * t->q.line, t->q.line, &t->key, t->panels[0], t->p, e)) return -1;
    b->vec->softmax(&s, t->p, t->kept + 2 * t->from);
    return over_keys(t, t->p, &t->v, t->panels[1], t->out + t->from * line, line, false, e);
}

/* As in op_attention.c, but the sum of p dp over a row is computed from the row. first: of this head. Only the
 * gradients that are wanted. */
static int backward_part(struct be *b, const struct head_part *t, bool first, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    const int64_t line = t->k->a.heads * t->k->a.width;
    const float *go = t->go + t->from * line, *q = t->q.at + t->from * t->q.line;
    if (over_width(t, q, t->q.line, &t->key, t->panels[0], t->p, e)) return -1;
    b->vec->softmax_again(&s, t->p, t->kept + 2 * t->from);
    if (t->v.grad && over_rows(t, t->p, go, line, &t->v, t->v.add || !first, e)) return -1;
    if (!t->q.grad && !t->key.grad) return 0;
    if (over_width(t, go, line, &t->v, t->panels[1], t->dp, e)) return -1;
    b->vec->softmax_backward(&s, t->p, t->dp);
    if (t->q.grad && over_keys(t, t->dp, &t->key, t->panels[2], t->q.grad + t->from * t->q.line, t->q.line, t->q.add,
                               e))
        return -1;
    return t->key.grad ? over_rows(t, t->dp, q, t->q.line, &t->key, t->key.add || !first, e) : 0;
}

static int head_run(struct be *b, struct head_part *t, struct err *e)
{
    const struct rows_kernel *k = t->k;
    const int64_t points = k->a.points, last = (points - 1) / k->rows * k->rows;
    if (k->own) panels_make(t);
    for (t->from = last; t->from >= 0; t->from -= k->rows) {
        const int64_t to = t->from + k->rows < points ? t->from + k->rows : points;
        t->rows = to - t->from;
        t->keys = k->a.causal ? to : points;
        t->line = keys_up(t->keys);
        if (k->base.key.phase == PH_FWD ? forward_part(b, t, e) : backward_part(b, t, t->from == last, e)) return -1;
    }
    return 0;
}

const struct product_ops *cpu_product_ops(const struct be *b)
{
    return b->lanes == 16 ? &product_avx512 : b->lanes == 8 ? &product_avx2 : NULL;
}

/* Heads that share keys and values are one thread's. The library's products stay on the thread that calls them. */
struct rows_heads { struct be *b; const struct rows_kernel *k; const struct be_call *c; int *bad; struct err *e; };

static void some_heads_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct rows_heads *h = data;
    const int64_t share = h->k->a.heads / h->k->a.kv_heads;
    for (int64_t i = from * share; i < to * share && !*h->bad; i++) {
        struct head_part t = part_of(h->k, h->c, i, thread);
        if (head_run(h->b, &t, h->e)) *h->bad = -1;
    }
}

static int rows_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct rows_kernel *k = (const struct rows_kernel *)base;
    int bad = 0;
    cpu_each(b->s->dev.threads, k->a.n * k->a.kv_heads, some_heads_run, &(struct rows_heads){b, k, c, &bad, e});
    return bad;
}

static void rows_close(struct be_kernel *base) { free(((struct rows_kernel *)base)->span); }

static struct be_kernel *rows_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct rows_kernel *k = kernel_new(like, sizeof *k);
    k->a = attention_of(b->g, like->node, like->key.samples);
    k->rows = rows_of(&k->a);
    k->span = mem_alloc((size_t)b->s->dev.threads * (size_t)k->rows * sizeof *k->span);
    k->base.run = rows_run;
    k->base.close = rows_close;
    const struct product_ops *own = cpu_product_ops(b);
    k->own = own && k->a.width % own->block == 0 ? own : NULL;
    if (!kernel_workspace(b, like, (size_t)b->s->dev.threads * thread_work(&k->a), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t rows_workspace(const struct selection *s, const struct group *k)
{
    const struct attention a = attention_of(s->g, group_node(s, k), 1);
    return CPU_WORK + (size_t)s->dev.threads * thread_work(&a);
}

/* Gradients of keys and values add up over queries. So the three must be tensors of their own, or one that all come
 * from. */
const char *cpu_attention_rows_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    for (int i = 0; i < k->n_in && i < 3; i++) if (!cpu_rows(s, k->in[i])) return "";
    if (!cpu_rows(s, k->out)) return "";
    for (int i = 1; i < k->n_in && i < 3; i++)
        for (int j = 0; j < i; j++) if (k->in[i] == k->in[j]) return "queries, keys and values from one tensor";
    return NULL;
}

const struct kernel_row cpu_rows_attention_rows[] = {
    {.name = "rows", .pattern = PATTERN_OP("attention"), .layouts = ROW_LAYOUT(LAYOUT_LAST), .layout = cpu_rows_follow,
     .refuses = cpu_attention_rows_refuse, .workspace = rows_workspace, .make = rows_make},
    {0}};
