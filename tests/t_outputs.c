/* Operators with several outputs, and attributes that are words or lists: text, checks, plans and bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rig.h"
#include "sure.h"

/* ---- text -------------------------------------------------------------------------------------------------------- */

static struct graph *parsed(const char *text, struct err *e) { return graph_parse("t.graph", text, strlen(text), e); }

START_TEST(text_comes_back)
{
    static const char text[] =
        "graph g\ninput input 12x5\nlabels labels class\na, b, c = split(input) sizes=3x4x5\n"
        "d = concat(b, a, c)\ne = gelu(d) form=tanh\nf = flatten(e)\ng = linear(f) features=4\n"
        "loss = softmax_cross_entropy(g, labels)\noutput g\nloss loss\n";
    struct text out = {0};
    struct err e = {0};
    struct graph *g = parsed(text, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    const struct node *n = &g->node[0];
    ck_assert(n->n_out == 3 && n->out == n->outs[0] && g->tensor[n->outs[2]].shape.d[0] == 5);
    ck_assert_str_eq(n->name, "a");
    ck_assert_str_eq(g->tensor[n->outs[1]].name, "b");
    ck_assert(!g->tensor[n->outs[1]].needs_grad && g->tensor[n->outs[1]].producer == 0);
    graph_print(g, &out);
    ck_assert_str_eq(out.s, text);
    graph_free(g);
    text_free(&out);
}
END_TEST

static const struct { const char *line, *says; } wrong[] = {
    {"a, b = split(input) sizes=3x4x5\n", "split has 3 outputs, not 2"},
    {"a = split(input) sizes=3x4\n", "the parts have 7 together, dimension 0 of the input 12x5 has 12"},
    {"a = split(input)\n", "sizes is missing"},
    {"a = split(input) sizes=12 dim=4\n", "no dimension 4"},
    {"a, a = split(input) sizes=6x6\n", "two outputs are called \"a\""},
    {"a, input = split(input) sizes=6x6\n", "there is already a tensor \"input\""},
    {"a, = split(input) sizes=6x6\n", "\"\" is not a name"},
    {"a, b c = split(input) sizes=6x6\n", "\"b c\" is not a name"},
    {"a, b = relu(input)\n", "relu has 1 outputs, not 2"},
    {"a = split(input) sizes=1x1x1x1x1x1x1x1x4\n", "expected up to 8 numbers"},
    {"a = gelu(input) form=erf\n", "expected one of exact tanh"},
    {"a = gelu(input) tanh=2\n", "gelu has no attribute \"tanh\""},
    {"a = gelu(input) form=tanh exact=yes\n", "form is set twice"},
};

START_TEST(wrong_texts)
{
    char text[400];
    struct err e = {0};
    snprintf(text, sizeof text, "graph g\ninput input 12x5\nlabels labels class\n%sf = flatten(a)\nloss = "
             "softmax_cross_entropy(f, labels)\n", wrong[_i].line);
    ck_assert_ptr_null(parsed(text, &e));
    ck_assert_msg(e.code == E_DATA && strstr(e.text, wrong[_i].says), "%s", e.text);
    ck_assert_msg(!strncmp(e.text, "t.graph:4: ", 11), "%s", e.text);
}
END_TEST

/* A word may be written as yes or no: form=tanh was once tanh=yes. */
START_TEST(words_as_switches)
{
    static const char *const attr[] = {"", " tanh=no", " tanh=yes", " form=tanh", " exact=yes"};
    static const int64_t want[] = {0, 0, 1, 1, 0};
    char text[300];
    struct err e = {0};
    snprintf(text, sizeof text, "graph g\ninput input 4\nlabels labels class\na = gelu(input)%s\nloss = "
             "softmax_cross_entropy(a, labels)\n", attr[_i]);
    struct graph *g = parsed(text, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(g->node[0].attr[0].i[0], want[_i]);
    graph_free(g);
}
END_TEST

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Queries, keys and values of their own, one of which two operators read; parts that nobody reads; and the same network
 * with an operator for each part. */
#define NET(parts) \
    "graph g\ninput input 6x4\nlabels labels class\nl = linear(input) features=12 points=yes\n" parts \
    "m = multiply(q, k)\ns = add(m, v)\nr = relu(s)\nu = add(r, k)\nw = linear(u) features=8 points=yes\n" \
    "t = gelu(w)\n" \
    "f = flatten(t)\no = linear(f) features=5\nloss = softmax_cross_entropy(o, labels)\noutput o\nloss loss\n"
static const char with_split[] = NET("q, k, v = split(l) sizes=4x4x4\n");
static const char with_slices[] = NET("v = slice(l) first=8 count=4\nk = slice(l) first=4 count=4\n"
                                      "q = slice(l) first=0 count=4\n");
static const char unread[] = "graph g\ninput input 6x4\nlabels labels class\nl = linear(input) features=12 points=yes\n"
                             "a, b, c, d = split(l) sizes=2x4x4x2\ns = add(b, c)\nf = flatten(s)\n"
                             "o = linear(f) features=5\nloss = softmax_cross_entropy(o, labels)\noutput o\nloss loss\n";
static const char *const backends[] = {"reference", "onednn"};

static void train(const char *graph, const struct rig *how, struct rig_result *r)
{
    struct rig q = *how;
    q.conf = "run { name = \"t\" seed = 3 }\nmodel { input = {6, 4} classes = 5 }\n"
             "data { source = \"synthetic\" samples = 50 test_samples = 5 }\n"
             "train { batch_size = 8 split_size = 2 steps = 3 learning_rate = 0.05 momentum = 0.9 }\n";
    q.graph = graph;
    q.steps = 3;
    q.evaluate = true;
    if (!q.schedule) q.schedule = "1f1b";
    ck_assert_msg(!rig_run(&q, r), "%d stages: %s", q.n_stages, r->e.text);
}

START_TEST(the_same_as_slices)
{
    struct rig_result parts, slices;
    train(with_split, &(struct rig){.backend = backends[_i], .n_stages = 1}, &parts);
    train(with_slices, &(struct rig){.backend = backends[_i], .n_stages = 1}, &slices);
    ck_assert(parts.loss[0] == slices.loss[0] && parts.loss[2] == slices.loss[2]);
    ck_assert(parts.eval_loss == slices.eval_loss);
    ck_assert_str_eq(parts.hash, slices.hash);
}
END_TEST

/* Each cut behind the split parts it differently: its outputs and their gradients cross one border or several. */
START_TEST(the_same_on_any_cut)
{
    static const struct rig how[] = {
        {.n_stages = 2}, {.n_stages = 3}, {.n_stages = 5}, {.n_stages = 11}, {.n_stages = 4, .schedule = "zb-h1"},
        {.n_stages = 4, .schedule = "gpipe", .recompute = 255}, {.n_stages = 3, .recompute = 0x55},
        {.n_stages = 4, .n_ranks = 2, .schedule = "interleaved"}, {.n_stages = 2, .groups = 2, .replicas = 2},
    };
    struct rig_result one, cut;
    for (int u = 0; u < 2; u++) {
        const char *net = u ? unread : with_split;
        train(net, &(struct rig){.backend = backends[_i], .n_stages = 1}, &one);
        for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
            struct rig q = how[i];
            q.backend = backends[_i];
            if (q.n_stages > one.n_groups) continue;
            if (q.groups) train(net, &(struct rig){.backend = backends[_i], .n_stages = 1, .groups = 2}, &one);
            train(net, &q, &cut);
            sure(!strcmp(one.hash, cut.hash) && one.loss[2] == cut.loss[2], "%s, way %zu", backends[_i], i);
        }
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("outputs", 120);
    tcase_add_test(t, text_comes_back);
    tcase_add_loop_test(t, wrong_texts, 0, sizeof wrong / sizeof *wrong);
    tcase_add_loop_test(t, words_as_switches, 0, 5);
    tcase_add_loop_test(t, the_same_as_slices, 0, 2);
    tcase_add_loop_test(t, the_same_on_any_cut, 0, 2);
    return suite_run("outputs", CK_FORK, t);
}
