/* One tensor as several inputs of an operator, for every operator that takes several. Such networks train as those in
 * which each further use reads a copy, for any backend, stages, schedule and recomputation. t_onednn and t_ops_ref test
 * single kernels, by the operators' examples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "exec_rig.h"
#include "model/op.h"
#include "op_graphs.h"

/* ---- the examples ---------------------------------------------------------------------------- */

/* Whether inputs i and j are one tensor in some example; or all are. */
static bool example_has(const struct op_kind *op, int i, int j, bool all)
{
    bool has = false;
    for (const char *const *s = op->examples; *s && !has; s++) {
        struct graph *g = op_graph_example(op, *s);
        const struct node *n = &g->node[0];
        if (all) for (has = n->n_in > 2, i = 1; i < n->n_in; i++) has &= n->in[i] == n->in[0];
        else has = i < n->n_in && j < n->n_in && n->in[i] == n->in[j];
        graph_free(g);
    }
    return has;
}

START_TEST(each_pair_is_an_example)
{
    int several = 0;
    for (const struct op_kind *const *o = op_list; *o; o++) {
        const int n = op_max_in(*o) < 3 ? op_max_in(*o) : 3;
        if ((op_grad_in(*o) & 3) != 3) continue;         /* a target has no gradient */
        several++;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                ck_assert_msg(example_has(*o, i, j, false), "%s has no example where inputs %d and %d are one tensor",
                              (*o)->name, j, i);
        if (n > 2) ck_assert_msg(example_has(*o, 0, 0, true), "%s has no example of one tensor alone", (*o)->name);
    }
    ck_assert_int_ge(several, 3);
}
END_TEST

/* ---- networks -------------------------------------------------------------------------------- */

/* A line after ? is in the network with copies alone, and a name before ' is that of its copy there. */
static const struct { const char *input, *text; } nets[] = {
    /* plain rows: each operator, each pair of inputs */
    {"input = {6} classes = 4",
     "graph rows\ninput x 6\nlabels t class\na = linear(x) features=6\n?ac = slice(a) first=0 count=6\n"
     "m = multiply(a, a')\n?mc = slice(m) first=0 count=6\nb = add(m, a, m')\n?bc = slice(b) first=0 count=6\n"
     "c = concat(b, b', a)\nd = linear(c) features=6\n?dc = slice(d) first=0 count=6\ne = add(d, d')\n"
     "?ec = slice(e) first=0 count=6\nf = multiply(e', e)\n?fc = slice(f) first=0 count=6\ng = add(f, f', f')\n"
     "h = concat(g, a)\ny = linear(h) features=4\nloss = softmax_cross_entropy(y, t)\n"},
    /* the product's tensor has no other reader, and its gradient comes from nowhere else */
    {"input = {6} classes = 4",
     "graph square\ninput x 6\nlabels t 4\na = linear(x) features=4 bias=no\n?ac = slice(a) first=0 count=4\n"
     "y = multiply(a, a')\nloss = mse(y, t)\n"},
    /* channels in blocks, batch norm with and without what is fused, two views of one tensor */
    {"input = {3, 6, 6} classes = 4",
     "graph blocks\ninput x 3x6x6\nlabels t class\na = conv(x) channels=16 kernel=3 padding=1\n"
     "?ac = slice(a) first=0 count=16\nm = multiply(a, a')\n?mc = slice(m) first=0 count=16\nn = batch_norm(m)\n"
     "s = add(n, m')\nr = relu(s)\n?rc = slice(r) first=0 count=16\nc = concat(r, r')\n"
     "p = conv(c) channels=16 kernel=1\n?pc = slice(p) first=0 count=16\nq = add(p, p')\no = batch_norm(q)\n"
     "?oc = slice(o) first=0 count=16\nw = add(o, o')\nv = relu(w)\n?vc = slice(v) first=0 count=16\n"
     "f = flatten(v)\nk = flatten(v')\nh = multiply(f, k)\ny = linear(h) features=4\n"
     "loss = softmax_cross_entropy(y, t)\n"},
    /* the same weight twice in one operator, and in two whose outputs are multiplied */
    {"input = {6} classes = 4",
     "graph weights\ninput x 6\nlabels t class\na = linear(x) features=6\n?ac = slice(a) first=0 count=6\n"
     "b = linear(a) features=6\nc = linear(a') features=6\ntie c.weight b.weight\ntie c.bias b.bias\n"
     "m = multiply(b, c)\nn = layer_norm(m)\ntie n.bias n.weight\ny = linear(n) features=4\n"
     "loss = softmax_cross_entropy(y, t)\n"},
};
enum { N_NETS = sizeof nets / sizeof *nets };

static char *text_of(int net, bool copies)
{
    char *text = malloc(strlen(nets[net].text) + 64), *to = text;
    for (const char *s = nets[net].text; *s; s++) {
        if (*s == '?' && !copies) s = strchr(s, '\n');
        else if (*s == '\'' ? copies : *s != '?') *to++ = *s == '\'' ? 'c' : *s;
    }
    *to = 0;
    return text;
}

static struct model_case case_of(int net, const char *text)
{
    const bool mse = strstr(text, "mse(") != NULL;
    return (struct model_case){"same tensor", nets[net].input, text, mse ? "onehot" : "class",
                               mse ? "mse" : "cross_entropy", ""};
}

/* Sums in another order: some roundings of 2^-24, over three steps. */
static void near(const char *what, int net, const char *backend, double x, double y)
{
    ck_assert_msg(isfinite(x) && fabs(x - y) <= 2e-5 * fabs(y), "network %d on %s: %s is %.9g, with copies %.9g", net,
                  backend, what, x, y);
}

/* _i: network, then backend: the reference, onednn on what the machine has, AVX2, and generic code. */
START_TEST(trains_as_with_copies)
{
    static const char *const isa[] = {"ALL", "ALL", "AVX2", "SSE41"};
    const int net = _i / 4;
    const char *backend = _i % 4 ? "onednn" : "reference";
    char *text = text_of(net, false), *copied = text_of(net, true);
    const struct model_case one_case = case_of(net, text), copy_case = case_of(net, copied);
    struct rig_result one, copy, r;
    setenv("ONEDNN_MAX_CPU_ISA", isa[_i % 4], 1);
    struct rig q = case_rig(&copy_case, backend);
    case_run(&q, &copy);
    q = case_rig(&one_case, backend);
    case_run(&q, &one);
    for (int i = 0; i < q.steps; i++) near("a loss", net, backend, one.loss[i], copy.loss[i]);
    near("the gradient's norm", net, backend, one.grad_norm, copy.grad_norm);
    for (int s = 0; s < N_SCHEDULES; s++)
        for (int stages = 1; stages <= 3 && (net != 1 || stages < 3); stages++)
            for (int again = 0; again < 2; again++) {
                if ((IS_SANITIZED || rig_cases() == CASES_FEW) && (s + stages + again) % 3) continue;
                q.schedule = rig_schedules[s];
                q.n_stages = stages;
                q.recompute = again ? ~0u : 0;
                case_same(&q, &one, &r);
            }
    free(text), free(copied);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("same", 120);
    tcase_add_test(t, each_pair_is_an_example);
    tcase_add_loop_test(t, trains_as_with_copies, 0, 4 * N_NETS);
    return suite_run("same", CK_FORK, t);
}
