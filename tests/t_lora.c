/* Adapters in the graph: where they are, what is trained, which layers, what peft is told; their sums with weights. */
#include <math.h>
#include <stdio.h>
#include "base/text.h"
#include "files.h"
#include "model/lora.h"
#include "model_rig.h"
#include "train/lora_merge.h"

static struct graph *adapted(const char *network, const char *lora, struct err *e)
{
    char s[700];
    snprintf(s, sizeof s, "model { %s } data { source = synthetic } train { steps = 1 } lora { %s }", network, lora);
    return built(s, e);
}

static int adapters_of(const struct graph *g)
{
    struct lora_pair p;
    int n = 0;
    for (int i = 0; i < g->n_params; i++) n += lora_pair_find(g, i, &p);
    return n;
}

/* The nodes of a graph, without its loss: "OPERATOR NAME < INPUT INPUT". */
static char *nodes(const struct graph *g)
{
    struct text t = {0};
    for (int i = 0; i < g->n_nodes - 1; i++) {
        const struct node *n = &g->node[i];
        text_add(&t, "%s%s %s <", i ? "; " : "", n->op->name, n->name);
        for (int k = 0; k < n->n_in; k++) text_add(&t, " %s", g->tensor[n->in[k]].name);
    }
    return t.s;
}

#define MLP "network = mlp input = {4} hidden = {6, 5} classes = 3"

static const struct { const char *lora, *nodes; } orders[] = {
    {"rank = 2 alpha = 3 dropout = 0.25 targets = {fc1}",
     "linear fc1 < input; dropout fc1.lora_dropout < input; linear fc1.lora_A < fc1.lora_dropout; "
     "times fc1.lora_scale < fc1.lora_A; linear fc1.lora_B < fc1.lora_scale; add fc1.lora < fc1 fc1.lora_B; "
     "relu relu1 < fc1.lora; linear fc2 < relu1; relu relu2 < fc2; linear fc3 < relu2"},
    {"rank = 2",
     "linear fc1 < input; linear fc1.lora_A < input; linear fc1.lora_B < fc1.lora_A; add fc1.lora < fc1 fc1.lora_B; "
     "relu relu1 < fc1.lora; linear fc2 < relu1; linear fc2.lora_A < relu1; linear fc2.lora_B < fc2.lora_A; "
     "add fc2.lora < fc2 fc2.lora_B; relu relu2 < fc2.lora; linear fc3 < relu2"},
    {"rank = 2 targets = {fc3}",
     "linear fc1 < input; relu relu1 < fc1; linear fc2 < relu1; relu relu2 < fc2; linear fc3 < relu2; "
     "linear fc3.lora_A < relu2; linear fc3.lora_B < fc3.lora_A; add fc3.lora < fc3 fc3.lora_B"},
};

START_TEST(nodes_are_behind_their_layer)
{
    struct err e = {0};
    struct graph *g = adapted(MLP, orders[_i].lora, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    char *have = nodes(g);
    ck_assert_str_eq(have, orders[_i].nodes);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) sure(g->tensor[g->node[i].in[k]].producer < i, "%s", g->node[i].name);
    if (_i == 2) ck_assert_str_eq(g->tensor[g->output].name, "fc3.lora");
    free(have);
    graph_free(g);
}
END_TEST

/* As peft begins, and in the order of files. */
START_TEST(adapters_alone_are_trained)
{
    struct err e = {0};
    struct graph *g = adapted(MLP, "rank = 2 alpha = 8 targets = {fc2}", &e);
    const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc2.lora_A.weight",
                                 "fc2.lora_B.weight", "fc3.weight", "fc3.bias"};
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(g->n_params, N_OF(names));
    for (int i = 0; i < g->n_params; i++) {
        const struct param *p = &g->param[i];
        const bool adapter = i == 4 || i == 5;
        ck_assert_str_eq(p->name, names[i]);
        ck_assert(p->frozen == !adapter && p->base == !adapter);
        ck_assert_int_eq(p->n_uses, 1);
    }
    ck_assert(g->param[4].init == INIT_UNIFORM && g->param[4].scale == 1 / sqrt(6));
    ck_assert(g->param[5].init == INIT_ZERO);
    ck_assert(!g->tensor[tensor_find(g, "relu1")].needs_grad && g->tensor[tensor_find(g, "fc2.lora_A")].needs_grad);
    struct lora_pair p;
    ck_assert(lora_pair_find(g, 2, &p) && p.a == 4 && p.b == 5 && p.scale == 4);
    ck_assert(!lora_pair_find(g, 3, &p) && !lora_pair_find(g, 0, &p) && !lora_pair_find(g, 4, &p));
    graph_free(g);
}
END_TEST

/* vit_b_16: 12 layers of 4 products and a head. resnet18: 20 convolutions, a head; fc is the only linear layer. */
static const struct { const char *network, *lora; int n; const char *wrong; } targets[] = {
    {"network = vit_b_16", "rank = 2", 48, NULL},
    {"network = vit_b_16", "rank = 2 targets = {\"out_proj\", \"head\"}", 13, NULL},
    {"network = vit_b_16", "rank = 2 targets = {\"conv_proj\"}", 1, NULL},
    {"network = resnet18", "rank = 2 targets = {\"conv1\", \"0\"}", 12, NULL},
    {"network = resnet18", "rank = 2 targets = {\"layer1.0.conv1\"}", 1, NULL},
    {"network = resnet18", "rank = 2", 0, "lora.targets|all-linear"},
    {"network = resnet18", "rank = 2 targets = {\"bn1\"}", 0, "lora.targets|bn1"},
    {"network = mobilenet_v2", "rank = 2 targets = {\"features.2.conv.1.0\"}", 0, "lora.targets|features.2.conv.1.0"},
};

START_TEST(targets_name_layers)
{
    struct err e = {0};
    struct graph *g = adapted(targets[_i].network, targets[_i].lora, &e);
    if (targets[_i].wrong) ck_assert_msg(!g && e.code == E_CONF && says(e.text, targets[_i].wrong), "%s", e.text);
    else {
        ck_assert_msg(g != NULL, "%s", e.text);
        ck_assert_int_eq(adapters_of(g), targets[_i].n);
    }
    graph_free(g);
}
END_TEST

/* A convolution's A has its window and stride, B one point; statistics of norms stay as they are. */
START_TEST(convolutions)
{
    struct err e = {0};
    struct graph *g = adapted("network = resnet18 input = {3, 32, 32}", "rank = 2 targets = {\"layer2.0.conv1\"}", &e);
    char s[96];
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_str_eq(shape_text(&g->param[param_find(g, "layer2.0.conv1.lora_A.weight")].shape, s), "2x64x3x3");
    ck_assert_str_eq(shape_text(&g->param[param_find(g, "layer2.0.conv1.lora_B.weight")].shape, s), "128x2x1x1");
    ck_assert(g->param[param_find(g, "layer2.0.conv1.lora_A.weight")].scale == 1 / sqrt(64 * 9));
    ck_assert(g->node[graph_node_find(g, "layer2.0.bn1")].fixed);
    ck_assert_int_eq(g->node[graph_node_find(g, "layer2.0.bn1")].in[0], tensor_find(g, "layer2.0.conv1.lora"));
    graph_free(g);
}
END_TEST

/* Rows of the summary end where their layers end. */
START_TEST(containers_follow)
{
    struct err e = {0};
    struct graph *g = adapted("network = llama input = {8} vocab_size = 11 hidden_size = 8 intermediate_size = 12 "
                              "num_hidden_layers = 2 num_attention_heads = 2", "rank = 1 targets = {down_proj}", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(g->n_containers, 2);
    for (int i = 0; i < 2; i++) {
        const struct container *c = &g->container[i];
        ck_assert_int_eq(g->tensor[c->out].producer, c->end - 1);
    }
    graph_free(g);
}
END_TEST

#define HEAD "input x 4\nlabels t class\na = linear(x) features=4\nb = linear(a) features=4\n"
#define TAIL "\nl = softmax_cross_entropy(c, t)\nloss l\n"

/* adapter_config.json of a network in graph text, without spaces. */
static void config_made(const char *text, const char *lora, struct text *out)
{
    char s[300];
    struct err e = {0};
    struct text made = {0};
    snprintf(s, sizeof s, "model { graph = g } data { source = synthetic } train { steps = 1 } lora { %s }", lora);
    put_text("g", text);
    struct conf *c = conf_parse("t.conf", s, strlen(s), &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    ck_assert_msg(g && !lora_config(c, g, &made, &e), "%s", e.text);
    for (const char *p = made.s; *p; p++) if (!strchr(" \n", *p)) text_add(out, "%c", *p);
    text_free(&made);
    graph_free(g);
    conf_free(c);
}

/* Layers that share a weight have adapters of their own. */
static const struct { const char *lora, *modules; } tied[] = {
    {"rank = 2 targets = {b}", "[\"b\"]"},
    {"rank = 2 targets = {a}", "[\"a\"]"},
    {"rank = 2 targets = {a, b}", "[\"a\",\"b\"]"},
    {"rank = 2", "[\"a\",\"b\"]"},
};

START_TEST(shared_weights_are_listed_by_layer)
{
    struct text t = {0}, want = {0};
    text_add(&want, "\"target_modules\":%s", tied[_i].modules);
    config_made(HEAD "c = linear(b) features=4\ntie b.weight a.weight" TAIL, tied[_i].lora, &t);
    ck_assert_msg(strstr(t.s, want.s) != NULL, "%s: not %s", t.s, want.s);
    text_free(&t);
    text_free(&want);
}
END_TEST

START_TEST(shared_weights_are_not_merged)
{
    static const char text[] = HEAD "c = linear(b) features=4\ntie b.weight a.weight" TAIL;
    static const char conf[] = "model { graph = g } data { source = synthetic } train { steps = 1 } "
                               "lora { rank = 2 targets = {b} merge = yes }";
    struct err e = {0};
    PUT("g", text);
    ck_assert_ptr_null(built(conf, &e));
    expect(&e, E_CONF, "lora.merge|b shares its weight with a");
}
END_TEST

/* More names than a list of the configuration has: l0.fc and so on, since r.fc has no adapter. */
START_TEST(many_names_are_read_back)
{
    enum { LAYERS = 40 };
    struct text text = {0}, made = {0};
    struct err e = {0};
    text_add(&text, HEAD "r.fc = relu(b)\n");
    for (int i = 0; i < LAYERS; i++)
        text_add(&text, i ? "l%d.fc = linear(l%d.fc) features=4\n" : "l%d.fc = linear(r.fc) features=4\n", i, i - 1);
    text_add(&text, "c = linear(l%d.fc) features=4" TAIL, LAYERS - 1);
    config_made(text.s, "rank = 2 alpha = 6 targets = {fc}", &made);
    put_text("adapter_config.json", made.s);
    struct graph *g = built("model { graph = g } data { source = synthetic } train { steps = 1 } "
                            "lora { init_from = \".\" }", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(adapters_of(g), LAYERS);
    graph_free(g);
    text_free(&text);
    text_free(&made);
}
END_TEST

START_TEST(sums)
{
    const float l[] = {1, 2, 3, 4, 5, 6}, r[] = {1, -1, 2, 0, 1, 3, 0.5f, 4};     /* 3x2, 2x4 */
    float to[12];
    for (int i = 0; i < 12; i++) to[i] = (float)i;
    low_rank_add(&(struct low_rank){3, 4, 2, l, r, 2}, to);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            ck_assert(to[i * 4 + j] == (float)(i * 4 + j) + 2 * (l[i * 2] * r[j] + l[i * 2 + 1] * r[4 + j]));
}
END_TEST

int main(void)
{
    TCase *t = suite_case("lora", 60);
    tcase_add_loop_test(t, nodes_are_behind_their_layer, 0, N_OF(orders));
    tcase_add_test(t, adapters_alone_are_trained);
    tcase_add_loop_test(t, targets_name_layers, 0, N_OF(targets));
    tcase_add_test(t, convolutions);
    tcase_add_test(t, containers_follow);
    tcase_add_test(t, sums);
    TCase *files = suite_case("files", 60);
    tcase_add_checked_fixture(files, scratch_enter, scratch_leave);
    tcase_add_loop_test(files, shared_weights_are_listed_by_layer, 0, N_OF(tied));
    tcase_add_test(files, shared_weights_are_not_merged);
    tcase_add_test(files, many_names_are_read_back);
    return suite_run("lora", CK_FORK, t, files);
}
