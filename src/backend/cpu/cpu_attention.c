/* Attention by oneDNN's sgemm, head by head: a head's matrices are plain, [width][points], in the packed tensors.
 *
 * Scores are computed for some queries at a time, so few that the scores and their gradients stay in the cache. That
 * number is a function of the number of points alone. Gradients of keys and values are added query block by query
 * block. */
#include <stdio.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/attention.h"

struct attention_kernel { struct be_kernel base; struct attention a; int64_t rows; };

/* Two matrices of queries by keys: scores, and their gradients. */
enum { SCORES_BYTES = 512 << 10 };
static int64_t rows_of(int64_t points)
{
    int64_t rows = SCORES_BYTES / (int64_t)sizeof(float) / points;
    return rows < 1 ? 1 : rows < points ? rows : points;
}
static size_t scores_work(int64_t points)
{
    return 2 * size_align64((size_t)(rows_of(points) * points) * sizeof(float));
}

/* One head, and its queries from `at` on. */
struct attention_part {
    const struct attention_kernel *k;
    const float *q, *key, *v, *go;
    float *out, *gq, *gkey, *gv, *kept, *p, *dp;
    int64_t at, rows;
};

static struct attention_part part_of(const struct attention_kernel *k, const struct be_call *c, int64_t i, int thread)
{
    const struct attention *a = &k->a;
    int64_t one = a->width * a->points, all = a->heads * one, from = i / a->heads * 3 * all + i % a->heads * one;
    struct attention_part t = {.k = k, .q = (const float *)c->in[0] + from, .kept = (float *)c->saved +
                               2 * i * a->points};
    t.key = t.q + all;
    t.v = t.key + all;
    t.p = (float *)((char *)c->work + (size_t)thread * scores_work(a->points));
    t.dp = t.p + scores_work(a->points) / 2 / sizeof(float);
    if (k->base.key.phase == PH_FWD) {
        t.out = (float *)c->out + i * one;
        return t;
    }
    t.go = (const float *)c->gout + i * one;
    t.gq = (float *)c->gin[0] + from;
    t.gkey = t.gq + all;
    t.gv = t.gkey + all;
    return t;
}

static int scores(const struct attention_part *t, struct err *e)
{
    int64_t n = t->k->a.points;
    return matmul_run((struct matmul){t->rows, n, t->k->a.width, {'T', t->q + t->at, n}, {'N', t->key, n}}, t->p, n, e);
}

static struct vec_scores scores_of(const struct attention_part *t)
{
    const struct attention *a = &t->k->a;
    return (struct vec_scores){t->rows, a->points, (float)a->scale, t->q + t->at, t->key, a->width, {a->points, 1},
                               {a->points, 1}, NULL};
}

static int forward_part(struct be *b, const struct attention_part *t, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    if (scores(t, e)) return -1;
    b->vec->softmax(&s, t->p, t->kept + 2 * t->at);
    const struct matmul out = {t->k->a.width, s.rows, s.n, {'N', t->v, s.n}, {'T', t->p, s.n}};
    return matmul_run(out, t->out + t->at, s.n, e);
}

/* As in op_attention.c, but the sum of p dp over a row is computed from the row. */
static int backward_part(struct be *b, const struct attention_part *t, bool acc, struct err *e)
{
    const struct vec_scores s = scores_of(t);
    const int64_t n = s.n, rows = s.rows, width = s.width;
    const struct matrix go = {'N', t->go + t->at, n}, turned = {'T', go.at, n}, q = {'N', t->q + t->at, n};
    bool more = acc || t->at;
    if (scores(t, e)) return -1;
    b->vec->softmax_again(&s, t->p, t->kept + 2 * t->at);
    if (matmul_run((struct matmul){width, n, rows, go, {'N', t->p, n}, more}, t->gv, n, e) ||
        matmul_run((struct matmul){rows, n, width, turned, {'N', t->v, n}}, t->dp, n, e))
        return -1;
    b->vec->softmax_backward(&s, t->p, t->dp);
    if (matmul_run((struct matmul){width, rows, n, {'N', t->key, n}, {'T', t->dp, n}, acc}, t->gq + t->at, n, e))
        return -1;
    return matmul_run((struct matmul){width, n, rows, q, {'N', t->dp, n}, more}, t->gkey, n, e);
}

/* The library's products stay on the thread that calls them. */
struct attention_heads {
    struct be *b; const struct attention_kernel *k; const struct be_call *c; int *bad; struct err *e;
};

static void attention_heads_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct attention_heads *h = data;
    const struct attention_kernel *k = h->k;
    const bool forward = k->base.key.phase == PH_FWD;
    for (int64_t i = from; i < to; i++) {
        struct attention_part t = part_of(k, h->c, i, thread);
        for (t.at = 0; t.at < k->a.points && !*h->bad; t.at += k->rows) {
            t.rows = k->a.points - t.at < k->rows ? k->a.points - t.at : k->rows;
            if (forward ? forward_part(h->b, &t, h->e) : backward_part(h->b, &t, h->c->gin_acc & 1, h->e)) *h->bad = -1;
        }
    }
}

static int attention_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct attention_kernel *k = (const struct attention_kernel *)base;
    int bad = 0;
    cpu_each(b->s->dev.threads, k->a.n * k->a.heads, attention_heads_run,
             &(struct attention_heads){b, k, c, &bad, e});
    return bad;
}

static const char *packed_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct attention a = attention_of(s->g, group_node(s, k), 1);
    return a.apart || a.causal ? "" : NULL;
}

static struct be_kernel *attention_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct attention_kernel *k = kernel_new(like, sizeof *k);
    k->a = attention_of(b->g, like->node, like->key.samples);
    k->rows = rows_of(k->a.points);
    k->base.run = attention_run;
    if (!kernel_workspace(b, like, (size_t)b->s->dev.threads * scores_work(k->a.points), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* Tensors that are not plain are copied. */
static struct be_kernel *attention_any_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    bool blocked = tensor_lanes(b, like->node->in[0]) > 1 || tensor_lanes(b, like->node->out) > 1;
    return blocked ? cpu_convert_make(b, like, 1, attention_make, e) : attention_make(b, like, e);
}

static size_t attention_workspace(const struct selection *s, const struct group *k)
{
    return CPU_WORK + (size_t)s->dev.threads * scores_work(shape_points(&s->g->tensor[k->out].shape));
}

const struct kernel_row cpu_rows_attention[] = {
    {.name = "sgemm", .pattern = PATTERN_OP("attention"), .layouts = ROW_ANY_LAYOUT, .refuses = packed_refuses,
     .workspace = attention_workspace, .make = attention_any_make},
    {0}};
