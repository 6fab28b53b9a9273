/* Attention on tokens as rows, by oneDNN's sgemm: a head's queries, keys and values are columns of the rows, so its
 * matrices are [position][width] with a distance between rows.
 *
 * Some queries at a time have their scores with all keys that they may see in a matrix, which stays in the cache. The
 * number of queries is a function of the number of points alone. Gradients of keys and values add up from the last
 * queries, which see all keys, to the first. */
#include <stdlib.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/attention.h"

struct rows_kernel { struct be_kernel base; struct attention a; int64_t rows; struct vec_span *span; };

/* Two matrices of queries by keys: scores, and their gradients. */
enum { SCORES_BYTES = 512 << 10, CAUSAL_ROWS = 64 };
static int64_t rows_of(const struct attention *a)
{
    int64_t rows = SCORES_BYTES / (int64_t)sizeof(float) / a->points;
    if (a->causal && rows > CAUSAL_ROWS) rows = CAUSAL_ROWS;
    return rows < 1 ? 1 : rows < a->points ? rows : a->points;
}
static size_t scores_work(const struct attention *a)
{
    return 2 * size_align64((size_t)(rows_of(a) * a->points) * sizeof(float));
}

/* A matrix of a head: its rows are `line` floats apart. */
struct head_matrix { const float *at; float *grad; int64_t line; bool add; };
/* One head of queries of a sample, and its queries from `from` on, which see keys up to `keys`. */
struct head_part {
    const struct rows_kernel *k;
    struct head_matrix q, key, v;
    const float *go;
    float *out, *kept, *p, *dp;
    struct vec_span *span;
    const int32_t *positions;
    int64_t from, rows, keys;
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
                          .p = (float *)((char *)c->work + (size_t)thread * scores_work(a)),
                          .span = k->span + thread * k->rows};
    t.key.add |= head % share > 0;
    t.v.add |= head % share > 0;
    t.dp = t.p + scores_work(a) / 2 / sizeof(float);
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
                               {1, t->q.line}, {1, t->key.line}, a->causal ? t->span : NULL};
}

static int scores(const struct head_part *t, struct err *e)
{
    return matmul_run((struct matmul){t->rows, t->keys, t->k->a.width, {'N', t->q.at + t->from * t->q.line, t->q.line},
                                      {'T', t->key.at, t->key.line}}, t->p, t->keys, e);
}

static int forward_part(struct be *b, const struct head_part *t, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    const int64_t line = t->k->a.heads * t->k->a.width;
    if (scores(t, e)) return -1;
    b->vec->softmax(&s, t->p, t->kept + 2 * t->from);
    return matmul_run((struct matmul){t->rows, t->k->a.width, t->keys, {'N', t->p, t->keys}, {'N', t->v.at, t->v.line}},
                      t->out + t->from * line, line, e);
}

/* As in op_attention.c, but the sum of p dp over a row is computed from the row. first: of this head. Only the
 * gradients that are wanted. */
static int backward_part(struct be *b, const struct head_part *t, bool first, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    const int64_t width = t->k->a.width, rows = t->rows, keys = t->keys, line = t->k->a.heads * width;
    const float *go = t->go + t->from * line;
    if (scores(t, e)) return -1;
    b->vec->softmax_again(&s, t->p, t->kept + 2 * t->from);
    if (t->v.grad &&
        matmul_run((struct matmul){keys, width, rows, {'T', t->p, keys}, {'N', go, line}, t->v.add || !first},
                   t->v.grad, t->v.line, e))
        return -1;
    if (!t->q.grad && !t->key.grad) return 0;
    if (matmul_run((struct matmul){rows, keys, width, {'N', go, line}, {'T', t->v.at, t->v.line}}, t->dp, keys, e))
        return -1;
    b->vec->softmax_backward(&s, t->p, t->dp);
    if (t->q.grad &&
        matmul_run((struct matmul){rows, width, keys, {'N', t->dp, keys}, {'N', t->key.at, t->key.line}, t->q.add},
                   t->q.grad + t->from * t->q.line, t->q.line, e))
        return -1;
    return !t->key.grad ? 0 : matmul_run((struct matmul){keys, width, rows, {'T', t->dp, keys},
                                      {'N', t->q.at + t->from * t->q.line, t->q.line}, t->key.add || !first},
                      t->key.grad, t->key.line, e);
}

static int head_run(struct be *b, struct head_part *t, struct err *e)
{
    const struct rows_kernel *k = t->k;
    const int64_t points = k->a.points, last = (points - 1) / k->rows * k->rows;
    for (t->from = last; t->from >= 0; t->from -= k->rows) {
        const int64_t to = t->from + k->rows < points ? t->from + k->rows : points;
        t->rows = to - t->from;
        t->keys = k->a.causal ? to : points;
        if (k->base.key.phase == PH_FWD ? forward_part(b, t, e) : backward_part(b, t, t->from == last, e)) return -1;
    }
    return 0;
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
    if (!kernel_workspace(b, like, (size_t)b->s->dev.threads * scores_work(&k->a), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t rows_workspace(const struct selection *s, const struct group *k)
{
    const struct attention a = attention_of(s->g, group_node(s, k), 1);
    return CPU_WORK + (size_t)s->dev.threads * scores_work(&a);
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
