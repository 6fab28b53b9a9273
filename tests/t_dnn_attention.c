/* Attention of dnn.h: the graphs that cuDNN is asked for, run one operation after the other
 * (tests/gpu/dnn_fake_graph.c), against the formulas. */
#include <math.h>
#include <stdio.h>
#include "tests/dnn_rig.h"

/* One head of queries of one sample: numbers at its rows of q, k, v, o or their gradients. */
struct head { const struct dnn_attention *a; int n, h; };
static size_t q_at(const struct head *h, int i, int c)
{
    return (size_t)((int64_t)(h->n * h->a->points + i) * h->a->line_q + h->h * h->a->width + c);
}
static size_t kv_at(const struct head *h, int i, int c)
{
    const int head = h->h / (h->a->heads / h->a->kv_heads);
    return (size_t)((int64_t)(h->n * h->a->points + i) * h->a->line_kv + head * h->a->width + c);
}
static size_t o_at(const struct head *h, int i, int c)
{
    return (size_t)(((h->n * h->a->points + i) * h->a->heads + h->h) * h->a->width + c);
}
static size_t row_at(const struct head *h, int i) { return (size_t)((h->n * h->a->heads + h->h) * h->a->points + i); }

struct numbers { double *q, *k, *v, *o, *stats, *go, *gq, *gk, *gv; };

static double score_of(const struct head *h, const struct numbers *x, int i, int j)
{
    double s = 0;
    if (h->a->causal && j > i) return -INFINITY;
    for (int c = 0; c < h->a->width; c++) s += x->q[q_at(h, i, c)] * x->k[kv_at(h, j, c)];
    return s * (double)h->a->scale;
}

/* o and stats of a head; then what it adds to the gradients. */
static void head_reference(const struct head *h, const struct numbers *x)
{
    const int points = h->a->points, width = h->a->width;
    for (int i = 0; i < points; i++) {
        double sum = 0;
        for (int j = 0; j < points; j++) sum += exp(score_of(h, x, i, j));
        x->stats[row_at(h, i)] = log(sum);
        for (int c = 0; c < width; c++) x->o[o_at(h, i, c)] = 0;
        for (int j = 0; j < points; j++)
            for (int c = 0; c < width; c++)
                x->o[o_at(h, i, c)] += exp(score_of(h, x, i, j)) / sum * x->v[kv_at(h, j, c)];
        double both = 0;
        for (int c = 0; c < width; c++) both += x->o[o_at(h, i, c)] * x->go[o_at(h, i, c)];
        for (int j = 0; j < points; j++) {
            const double p = exp(score_of(h, x, i, j)) / sum;
            double gp = 0;
            for (int c = 0; c < width; c++) gp += x->go[o_at(h, i, c)] * x->v[kv_at(h, j, c)];
            for (int c = 0; c < width; c++) {
                x->gv[kv_at(h, j, c)] += p * x->go[o_at(h, i, c)];
                x->gk[kv_at(h, j, c)] += p * (gp - both) * (double)h->a->scale * x->q[q_at(h, i, c)];
                x->gq[q_at(h, i, c)] += p * (gp - both) * (double)h->a->scale * x->k[kv_at(h, j, c)];
            }
        }
    }
}

static double *doubles(const struct array *a)
{
    double *v = mem_alloc(a->n * sizeof *v);
    for (size_t i = 0; i < a->n; i++) v[i] = (double)a->v[i];
    return v;
}

static void near(const struct array *a, const double *want, const char *what)
{
    for (size_t i = 0; i < a->n; i++) {
        const float have = a->type == DNN_BF16 ? fake_wide(((uint16_t *)a->p)[i]) : ((float *)a->p)[i];
        ck_assert_msg(fabs((double)have - want[i]) < 0.03 * (1 + fabs(want[i])), "%s: element %zu is %g, want %g", what,
                      i, (double)have, want[i]);
    }
}

/* Apart and in one tensor, with as many heads of keys and with fewer, causal and not: the formulas, within bfloat16. */
START_TEST(attentions)
{
    const int kv = _i & 1 ? 2 : 4, live = fake_live;
    const bool one = _i >> 1 & 1 && kv == 4, causal = _i >> 2;
    const struct dnn_attention a = {.n = 2, .points = 5, .heads = 4, .kv_heads = kv, .width = 8, .causal = causal,
                                    .scale = 0.3f, .line_q = one ? 3 * 32 : 32, .line_kv = one ? 3 * 32 : kv * 8};
    const size_t q = (size_t)(a.n * a.points * a.line_q), k = (size_t)(a.n * a.points * a.line_kv), o = 2 * 5 * 32;
    struct array x[9] = {array_new(DNN_BF16, q, 1), array_new(DNN_BF16, k, 2), array_new(DNN_BF16, k, 3),
                         array_new(DNN_BF16, o, 4), array_new(DNN_F32, 40, 5), array_new(DNN_BF16, o, 6),
                         array_new(DNN_BF16, q, 7), array_new(DNN_BF16, k, 8), array_new(DNN_BF16, k, 9)};
    double *v[9];
    for (int i = 0; i < 9; i++) v[i] = doubles(&x[i]);
    const struct numbers want = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]};
    struct head h = {&a, 0, 0};
    for (h.n = 0; h.n < a.n; h.n++)                      /* gradients begin at 0 where they are written */
        for (h.h = 0; h.h < a.heads; h.h++)
            for (int i = 0; i < a.points * a.width; i++) {
                v[6][q_at(&h, i / a.width, i % a.width)] = 0;
                v[7][kv_at(&h, i / a.width, i % a.width)] = v[8][kv_at(&h, i / a.width, i % a.width)] = 0;
            }
    for (h.n = 0; h.n < a.n; h.n++) for (h.h = 0; h.h < a.heads; h.h++) head_reference(&h, &want);
    fakes_reset();
    struct dnn *d = opened(NULL);
    struct err e = {0};
    float sums[40];
    char *work = mem_alloc(dnn_attention_work(&a, true));
    const struct dnn_attention_operands at = {x[0].p, x[1].p, x[2].p, x[3].p, x[4].p, x[5].p, x[6].p, x[7].p, x[8].p,
                                              sums, work};
    for (int back = 0; back < 2; back++) {
        struct dnn_attention_plan *p, *other;
        ok(dnn_attention_plan(d, &a, back, dnn_attention_work(&a, true), &p, &e), &e);
        ok(dnn_attention_plan(d, &a, back, dnn_attention_work(&a, true), &other, &e), &e);
        ck_assert_ptr_eq(p, other);
        for (int i = 0; i < 2; i++) ok(dnn_attention_run(d, p, &at, &e), &e);
    }
    static const char *const name[] = {"q", "k", "v", "o", "stats", "go", "gq", "gk", "gv"};
    for (int i = 3; i < 9; i++) near(&x[i], v[i], name[i]);
    for (int i = 0; i < 9; i++) array_free(&x[i]), free(v[i]);
    free(work);
    dnn_close(d);
    ck_assert_int_eq(fake_live, live);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("dnn_attention", 60);
    tcase_add_loop_test(t, attentions, 0, 8);
    return suite_run("dnn_attention", CK_FORK, t);
}
