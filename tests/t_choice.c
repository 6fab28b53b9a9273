/* The onednn backend's choice of kernels, on each instruction set. No convolution of any network of the zoo, at usual
 * sizes, uses a reference loop, neither the library's nor this project's. The plan names exactly the kernels that are
 * fallbacks. Kernels are made, nothing runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "plan/cost.h"
#include "plan/render.h"
#include "op_graphs.h"
#include "sure.h"

static const char *const isas[] = {"ALL", "AVX2", "SSE41"};
enum { N_ISAS = 3 };

/* What has been seen: equal convolutions of the same number of samples get equal kernels. */
struct seen { char key[200]; };
struct census { VEC(struct seen) seen; int kernels, reference, slow; char first[200]; };

static bool is_new(struct census *c, const char *key)
{
    for (int i = 0; i < c->seen.n; i++) if (!strcmp(c->seen.v[i].key, key)) return false;
    struct seen *s = vec_push(&c->seen);
    snprintf(s->key, sizeof s->key, "%s", key);
    return true;
}

static void key_write(const struct graph *g, const struct group *k, enum phase ph, int n, char *out, size_t size)
{
    const struct node *node = &g->node[k->node[0]];
    char in[96], to[96];
    int at = snprintf(out, size, "%s %d n%d %s > %s, %d readers:", node->op->name, ph, n,
                      shape_text(&g->tensor[k->in[0]].shape, in), shape_text(&g->tensor[k->out].shape, to),
                      g->tensor[k->in[0]].n_readers > 1 ? 2 : 1);
    for (int i = 0; node->op->attr && node->op->attr[i].name && at < (int)size; i++)
        at += snprintf(out + at, size - (size_t)at, " %g", (double)node->attr[i].i[0]);
}

/* The selection's word on a group, of this pass, and the kernel that was made. */
static void word_check(const struct graph *g, const struct group *k, const struct be_kernel *kernel)
{
    static const char *const pass[PH_COUNT] = {
        [PH_FWD] = "output", [PH_BWD_DATA] = "input gradient", [PH_BWD_WEIGHTS] = "weight gradient"};
    const char *node = g->node[k->node[0]].name, *word = k->fallback ? k->fallback : "";
    const struct op_kind *op = g->node[k->node[0]].op;
    const char *what = kernel->row->fallback;
    bool others = strchr(word, '(') != NULL, here = others && strstr(word, pass[kernel->key.phase]);
    sure(kernel->row == k->row[kernel->key.phase], "%s by %s", node, kernel->name);
    sure(!what || !strncmp(word, what, strlen(what)), "%s by %s: \"%s\"", node, kernel->name, word);
    sure(*word ? (what != NULL) == (!others || here) : !what, "%s by %s: \"%s\"", node, kernel->name, word);
    sure(!what || strcmp(kernel->name, "reference") || !op->draws || strstr(word, "draws"), "%s: \"%s\"", node, word);
}

static void group_count(struct census *c, const struct be_ops *ops, struct be *b, const struct selection *s, int group,
                        enum phase ph, int n)
{
    const struct group *k = &s->group[group];
    struct err e = {0};
    struct be_kernel *kernel;
    char key[200];
    if ((ph == PH_BWD_DATA && !k->grad_in) || (ph == PH_BWD_WEIGHTS && !k->pgrad_in_w)) return;
    key_write(s->g, k, ph, n, key, sizeof key);
    if (!is_new(c, key)) return;
    ck_assert_msg(!ops->prepare(b, &(struct be_key){group, ph, n, true}, &kernel, &e), "%s", e.text);
    word_check(s->g, k, kernel);
    if (!op_is_product(s->g->node[k->node[0]].op)) return;
    sure(*kernel->name, "%s: the kernel has no name", key);
    c->kernels++;
    if (strncmp(kernel->name, "ref", 3)) return;
    if (!c->reference++ && !c->slow) snprintf(c->first, sizeof c->first, "%s: %s", key, kernel->name);
}

static void network_count(struct census *c, struct graph *g, int n)
{
    const struct be_ops *ops = be_find("onednn");
    struct err e = {0};
    struct device d;
    struct be *b;
    ck_assert(!ops->describe(0, &d, &e));
    struct selection *s = select_make(g, &d, n, &e);
    ck_assert_msg(s && !ops->open(s, 1, 0, &b, &e), "%s", e.text);
    for (int i = 0; i < s->n_groups; i++) {
        if (s->group[i].slow && !c->slow++)
            snprintf(c->first, sizeof c->first, "%s: %s", g->node[s->group[i].node[0]].name, s->group[i].fallback);
        for (int ph = 0; ph < PH_COUNT; ph++) group_count(c, ops, b, s, i, (enum phase)ph, n);
    }
    ops->close(b);
    select_free(s);
}

static struct graph *network_with(const char *name, const char *input, const char *labels, const char *loss)
{
    char text[400];
    struct err e = {0};
    snprintf(text, sizeof text,
             "run { name = \"c\" }\nmodel { network = \"%s\" %s }\ndata { source = \"synthetic\" labels = \"%s\" }\n"
             "train { steps = 1 batch_size = 64 split_size = 32 loss = \"%s\" }\n",
             name, input, labels, loss);
    struct conf *c = conf_parse("choice", text, strlen(text), &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    conf_free(c);
    return g;
}

static struct graph *network(const char *name, const char *input)
{
    return network_with(name, input, "class", "cross_entropy");
}

static void none_refers(const struct census *c)
{
    ck_assert_msg(!c->reference, "%d of %d kernels are reference loops, the first: %s", c->reference, c->kernels,
                  c->first);
}

START_TEST(zoo)
{
    static const char *const nets[] = {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"};
    static const int pixels[] = {32, 64, 96, 128, 224}, samples[] = {1, 2, 5, 20, 32};
    struct census c = {0};
    setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1);
    for (int s = 0; s < 5; s++) {
        for (int p = 0; p < 5; p++)
            for (int i = 0; i < 5; i++) {
                char input[40];
                snprintf(input, sizeof input, "input = {3, %d, %d}", pixels[p], pixels[p]);
                struct graph *g = network(nets[i], input);
                network_count(&c, g, samples[s]);
                graph_free(g);
            }
        struct graph *toy = network("toy", ""), *mlp = network("mlp", "");
        network_count(&c, toy, samples[s]);
        network_count(&c, mlp, samples[s]);
        graph_free(toy);
        graph_free(mlp);
    }
    sure(c.kernels > 1000, "only %d kernels were looked at", c.kernels);
    none_refers(&c);
    ck_assert_msg(!c.slow, "%s", c.first);
    vec_free(&c.seen);
}
END_TEST

/* Grey pictures, depthwise convolutions with and without blocks, odd channels, wide kernels. */
static const char grey[] =
    "graph grey\ninput input 1x28x28\nlabels labels class\na = conv(input) channels=16 kernel=3 padding=1\n"
    "b = conv(a) channels=16 kernel=3 padding=1 groups=16 bias=no\nc = conv(b) channels=32 kernel=1 bias=no\n"
    "d = conv(c) channels=32 kernel=5 padding=2 stride=2 groups=32\ne = conv(d) channels=20 kernel=5 padding=2\n"
    "f = conv(e) channels=20 kernel=3 padding=1 groups=20\ng = conv(f) channels=64 kernel=3 padding=3 dilation=3\nh = "
    "global_avg_pool(g)\ni = flatten(h)\n"
    "j = linear(i) features=10\nloss = softmax_cross_entropy(j, labels)\noutput j\nloss loss\n";

START_TEST(grey_pictures)
{
    struct err e = {0};
    struct census c = {0};
    setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1);
    struct graph *g = graph_parse("grey", grey, strlen(grey), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    network_count(&c, g, 1);
    network_count(&c, g, 32);
    none_refers(&c);
    ck_assert_msg(c.slow && strstr(c.first, "products of single channels"), "%s",
                  c.first); /* 20 channels are in no blocks */
    vec_free(&c.seen);
    graph_free(g);
}
END_TEST

static void words_check(struct graph *g, int n)
{
    struct census c = {0};
    network_count(&c, g, n);
    sure(c.seen.n > 0, "no kernel was looked at");
    vec_free(&c.seen);
    graph_free(g);
}

/* Every operator's examples, and odd convolutions. */
START_TEST(stand_ins_are_named)
{
    setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1);
    for (int i = 0; op_list[i]; i++)
        for (int j = 0; op_list[i]->examples[j]; j++)
            words_check(op_graph_example(op_list[i], op_list[i]->examples[j]), 3);
    for (int i = 0; i < OP_GRAPH_CONVS; i++) words_check(op_graph_chain(op_graph_convs[i]), 5);
}
END_TEST

/* Where oneDNN has but plain layouts, its kernel for such weights wants more memory than any layer is given; and what
 * --plan says of all layers alike is one line. */
START_TEST(large_scratch_is_named)
{
    setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
    static const char text[] =
        "graph wide\ninput input 512x10x10\nlabels labels class\na = conv(input) channels=512 kernel=3 padding=1\n"
        "b = conv(a) channels=512 kernel=3 padding=1\nc = global_avg_pool(b)\nd = flatten(c)\n"
        "loss = softmax_cross_entropy(d, labels)\noutput d\nloss loss\n";
    struct err e = {0};
    struct device d;
    struct graph *g = graph_parse("wide", text, strlen(text), &e);
    ck_assert_msg(g && !be_find("onednn")->describe(0, &d, &e), "%s", e.text);
    struct selection *s = select_make(g, &d, 4, &e);
    const char *word = s->group[1].fallback;
    ck_assert_msg(word && strstr(word, "(weight gradient): the library's kernel needs more memory than planned"),
                  "%s", word ? word : "nothing is said");
    ck_assert(!s->group[1].slow);
    select_free(s);
    graph_free(g);
}
END_TEST

/* Of V-Net's convolutions on volumes of 32x32x32: how many are made by which kernel of this backend, of each pass. */
struct own { int wino, weights, patches, transposed; };

static bool is_own(const struct be_ops *ops, struct be *b, int group, enum phase ph)
{
    struct err e = {0};
    struct be_kernel *k;
    ck_assert_msg(!ops->prepare(b, &(struct be_key){group, ph, 2, true}, &k, &e), "%s", e.text);
    return !strcmp(k->name, "winograd") || !strcmp(k->name, "patches");
}

static struct own own_count(int threads)
{
    const struct be_ops *ops = be_find("onednn");
    struct graph *g = network_with("vnet_eisen", "input = {1, 32, 32, 32}", "map", "dice");
    struct own own = {0};
    struct err e = {0};
    struct device d;
    struct be *b;
    ck_assert(!ops->describe(0, &d, &e));
    d.threads = threads;
    struct selection *s = select_make(g, &d, 2, &e);
    ck_assert_msg(s && !ops->open(s, threads, 0, &b, &e), "%s", e.text);
    for (int i = 0; i < s->n_groups; i++) {
        const struct node *n = &g->node[s->group[i].node[0]];
        if (n->op->category != OP_CONV && n->op->category != OP_CONV_TRANSPOSED) continue;
        bool wino = !strcmp(s->group[i].row[PH_FWD]->name, "winograd"), patch = cpu_conv_patch(s, n);
        ck_assert((s->group[i].share > 0) == wino && (!wino || s->group[i].share < 0.7));
        for (int ph = 0; (wino || patch) && ph < PH_BWD_WEIGHTS; ph++) sure(is_own(ops, b, i, ph), "%s", n->name);
        own.wino += wino;
        own.weights += wino && is_own(ops, b, i, PH_BWD_WEIGHTS);
        own.patches += patch && n->op->category == OP_CONV;
        own.transposed += patch && n->op->category == OP_CONV_TRANSPOSED;
    }
    ops->close(b);
    select_free(s);
    graph_free(g);
    return own;
}

/* Blocks of channels, and a thread a rank: 16 to 128 channels by Winograd's algorithm, weight gradients on planes of
 * 8x8 points and more, and what has no overlap by products. Without blocks, or with several threads: none of it. */
START_TEST(volumes)
{
    setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1);
    const bool blocks = cpu_isa(&(struct device){0}) > 1;
    struct own one = own_count(1), two = own_count(2);
    ck_assert_msg(one.wino == (blocks ? 19 : 0) && one.weights == (blocks ? 13 : 0), "%d, %d", one.wino, one.weights);
    ck_assert_msg(one.patches == (blocks ? 4 : 0) && one.transposed == (blocks ? 4 : 0), "%d, %d", one.patches,
                  one.transposed);
    ck_assert(!two.wino && !two.patches && !two.transposed);
}
END_TEST

/* A slow path has a name and a reason before anything runs, and costs what it is. */
START_TEST(slow_is_said)
{
    static const char text[] =
        "graph slow\ninput input 16x8x8x8\nlabels labels class\na = conv(input) channels=16 kernel=1\n"
        "b = add(a, a, a)\nc = global_avg_pool(b)\nd = flatten(c)\nloss = softmax_cross_entropy(d, "
        "labels)\noutput d\nloss loss\n";
    struct err e = {0};
    struct device d;
    struct graph *g = graph_parse("slow", text, strlen(text), &e);
    ck_assert_msg(g && !be_find("onednn")->describe(0, &d, &e), "%s", e.text);
    struct selection *s = select_make(g, &d, 4, &e);
    struct cost *k = cost_estimate(s);
    struct text t = {0};
    plan_slow_text(s, &t);
    ck_assert_msg(t.s && !strncmp(t.s, "slow: b, add by a plain loop: ", 30), "%s", t.s ? t.s : "nothing is said");
    ck_assert(cost_ns(k, PH_FWD, 1, 1) > 16 * 8 * 8 * 8);
    text_free(&t);
    cost_free(k);
    select_free(s);
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *c = suite_case("kernels", 300);
    tcase_add_loop_test(c, zoo, 0, N_ISAS);
    tcase_add_loop_test(c, grey_pictures, 0, N_ISAS);
    tcase_add_loop_test(c, volumes, 0, N_ISAS);
    tcase_add_test(c, slow_is_said);
    tcase_add_loop_test(c, stand_ins_are_named, 0, N_ISAS);
    tcase_add_test(c, large_scratch_is_named);
    return suite_run("choice", CK_FORK, c);
}
