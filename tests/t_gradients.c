/* The gradient of a whole network, computed by the reference operators, against finite differences. */
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "graph_eval.h"
#include "sure.h"

static const char tangled[] =
    "graph tangled\ninput x 5\nlabels t class\na = linear(x) features=6\nb = batch_norm(a)\nc = linear(b) "
    "features=6\nd = linear(c) features=6\ntie d.weight c.weight\n"
    "e = add(d, b, b)\nf = concat(e, a)\ng = dropout(f) p=0.25\ny = linear(g) features=4\nloss = "
    "softmax_cross_entropy(y, t)\noutput y\nloss loss\n";

static double tangled_loss(struct graph_eval *v)
{
    graph_eval_forward(v);
    return graph_eval_loss(v) / v->n;
}

/* A tied weight, a tensor read four times (twice by one node), a skip: the gradient of each parameter of the whole. The
 * loss is a double, what lies before it is float: values about 3 err by 2^-24 of it, which the division by h makes
 * about 4e-5; batch norm over six samples curves so much that a larger step would err more. */
START_TEST(graph_gradients)
{
    struct err e = {0};
    struct graph *g = graph_parse("tangled", tangled, strlen(tangled), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    struct graph_eval *v = graph_eval_new(g, 6, true);
    static const double weight[] = {8, -8, -1, 1};
    static const float at[] = {1, -1, 2, -2}, h = 0x1p-7f;
    graph_eval_init(v, 3);
    rng_fill_normal((struct rng_at){5, RNG_TEST, 50, 0, 0}, v->value[graph_input_first(g, ROLE_SAMPLE)], 30);
    for (int i = 0; i < 6; i++) ((int64_t *)v->value[graph_input_first(g, ROLE_TARGET)])[i] = i % 4;
    graph_eval_forward(v);
    graph_eval_backward(v);
    for (int p = 0; p < g->n_params; p++)
        for (int64_t i = 0; v->pgrad[p] && i < shape_count(&g->param[p].shape); i += 3) {
            float *x = (float *)v->param[p] + i, keep = *x;
            double d = 0;
            for (int k = 0; k < 4; k++) { *x = keep + at[k] * h; d += weight[k] * tangled_loss(v); }
            *x = keep;
            d /= 12 * (double)h;
            sure(fabs(d - v->pgrad[p][i]) < 1e-4, "%s %d: gradient %g, difference %g", g->param[p].name, (int)i,
                 v->pgrad[p][i], d);
        }
    graph_eval_free(v);
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("gradients", 120);
    tcase_add_test(t, graph_gradients);
    return suite_run("gradients", CK_FORK, t);
}
