/* Attention's gradients for large scores, of the reference and of onednn on each instruction set, against the same
 * formula in double: softmax is sensitive to a score's last digits, which a float cannot hold. */
#include <math.h>
#include <string.h>
#include "net_rig.h"
#include "op_graphs.h"
#include "sure.h"

/* limit: three times the error of PyTorch 1.13 in float, on other random values of that size. */
static const struct { const char *chain; int heads; float by; double limit; } table[] = {
    {"3x26; attention heads=1", 1, 1, 4e-7},
    {"3x26; attention heads=1", 1, 4, 2e-6},
    {"24x17; attention heads=1", 1, 3, 1.6e-6},
    {"24x17; attention heads=1", 1, 10, 4e-6},
    {"24x17; attention heads=1", 1, 100, 7e-8},
    {"192x50; attention heads=1", 1, 4, 6e-6},
    {"48x5x6; attention heads=2", 2, 8, 5e-6},
    {"24x700; attention heads=1", 1, 10, 2e-5},          /* several blocks of queries */
};

/* One head's matrices, [width][points], and what they get. */
struct head { const float *q, *k, *v, *go; double *gq, *gk, *gv; int64_t width, points; };

static double product(const struct head *h, const float *x, int64_t i, const float *y, int64_t j)
{
    double sum = 0;
    for (int64_t w = 0; w < h->width; w++) sum += (double)x[w * h->points + i] * y[w * h->points + j];
    return sum;
}

static void row_backward(const struct head *h, int64_t i)
{
    const double scale = 1 / sqrt((double)h->width);
    double p[700], dp[700], most = -INFINITY, sum = 0, mean = 0;
    for (int64_t j = 0; j < h->points; j++) most = fmax(most, p[j] = scale * product(h, h->q, i, h->k, j));
    for (int64_t j = 0; j < h->points; j++) sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < h->points; j++) {
        p[j] /= sum;
        mean += p[j] * (dp[j] = product(h, h->go, i, h->v, j));
    }
    for (int64_t j = 0; j < h->points; j++)
        for (int64_t w = 0; w < h->width; w++) {
            const int64_t at = w * h->points;
            const double ds = scale * p[j] * (dp[j] - mean);
            h->gq[at + i] += ds * h->k[at + j];
            h->gk[at + j] += ds * h->q[at + i];
            h->gv[at + j] += p[j] * h->go[at + i];
        }
}

/* The gradient of all samples; free() it. */
static double *wanted(const struct net *t, int heads)
{
    const struct shape *s = &t->g->tensor[t->g->node[0].in[0]].shape;
    const int64_t all = s->d[0] / 3, points = shape_count(s) / s->d[0], one = all / heads * points;
    const float *x = t->plain[t->g->node[0].in[0]], *go = t->gplain[t->g->node[0].out];
    double *g = calloc(tensor_floats(t, t->g->node[0].in[0]), sizeof *g);
    for (int64_t n = 0; n < t->n; n++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t at = (n * 3 * heads + h) * one, next = heads * one;
            const struct head of = {x + at, x + at + next, x + at + 2 * next, go + (n * heads + h) * one, g + at,
                                    g + at + next, g + at + 2 * next, all / heads, points};
            for (int64_t i = 0; i < points; i++) row_backward(&of, i);
        }
    return g;
}

static double distance(const float *x, const double *want, size_t n)
{
    double d = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        d += (x[i] - want[i]) * (x[i] - want[i]);
        norm += want[i] * want[i];
    }
    return sqrt(d / norm);
}

/* _i: instruction set, then row of the table. */
START_TEST(gradients_of_large_scores)
{
    static const char *const isa[] = {"ALL", "AVX2", "SSE41"};
    struct err e = {0};
    struct net t;
    setenv("DNNL_MAX_CPU_ISA", isa[_i % 3], 1);
    net_open(&t, op_graph_chain(table[_i / 3].chain), 2);
    const struct group *k = &t.s->group[0];
    const int in = k->in[0];
    const size_t n = tensor_floats(&t, in);
    for (size_t i = 0; i < n; i++) ((float *)t.plain[in])[i] *= table[_i / 3].by;
    ok(t.ops->tensor_import(t.b, in, t.n, t.store[in], t.plain[in], &e), &e);
    ok(t.ops->tensor_import(t.b, k->out, t.n, t.gstore[k->out], t.gplain[k->out], &e), &e);
    double *want = wanted(&t, table[_i / 3].heads);
    float *got = calloc(n, sizeof *got);
    group_memory(&t, k, true);
    be_phase(&t, 0, PH_FWD, false);
    be_phase(&t, 0, PH_BWD_DATA, false);
    ok(t.ops->tensor_export(t.b, in, t.n, got, t.gstore[in], &e), &e);
    ref_forward(&t, k);
    ref_backward(&t, k);
    const double error[2] = {distance(got, want, n), distance(t.gplain[in], want, n)};
    for (int i = 0; i < 2; i++)
        sure(error[i] <= table[_i / 3].limit, "%s times %g, %s: the gradient is %.1e off, limit %.1e",
             table[_i / 3].chain, (double)table[_i / 3].by, i ? "the reference" : isa[_i % 3], error[i],
             table[_i / 3].limit);
    group_memory(&t, k, false);
    free(want), free(got);
    net_close(&t);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("attention", 60);
    tcase_add_loop_test(t, gradients_of_large_scores, 0, 3 * N_OF(table));
    return suite_run("attention", CK_FORK, t);
}
