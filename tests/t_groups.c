/* Groups of parameters by pattern: frozen ones and the consequences, factors, errors. */
#include <stdio.h>
#include <string.h>
#include "model_rig.h"

#define NET "model { network = resnet18 input = {3, 32, 32} } data { source = synthetic } "

static struct graph *net(const char *train, struct err *e)
{
    char s[400];
    snprintf(s, sizeof s, NET "train { steps = 1 %s }", train);
    return built(s, e);
}

static int frozen_of(const struct graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_params; i++) n += g->param[i].frozen;
    return n;
}

/* resnet18: layer1 has two blocks of two convolutions and norms, so 4 + 8 weights. */
static const struct { const char *train; int frozen; } frozen[] = {
    {"", 0},
    {"freeze = {layer1}", 12},
    {"freeze = {\"layer1.*\"}", 12},
    {"freeze = {\"layer1.1\"}", 6},
    {"freeze = {\"layer1.0.conv1\", \"layer1.0.conv?\"}", 2},
    {"freeze = {\"layer[12]\", conv1}", -1},
    {"freeze = {\"layer1.0.bn1.weight\"}", 1},
    {"freeze = {\"*.bias\"}", 21},                       /* of 20 norms, and the last layer's */
    {"freeze = {BatchNorm2d}", 40},
    {"freeze = {batch_norm}", 40},
    {"freeze = {\"layer*\", conv1, bn1}", 60},
    {"freeze = {\"layer*.0.downsample.?\"}", 9},
    {"freeze = {layer}", -1},                            /* whole components */
    {"freeze = {\"layer1.0.bn1.running_mean\"}", -1},
    {"freeze = {\"*\"}", -1},
};

START_TEST(patterns)
{
    struct err e = {0};
    struct graph *g = net(frozen[_i].train, &e);
    if (frozen[_i].frozen < 0) ck_assert_msg(!g && e.code == E_CONF && says(e.text, "train.freeze: "), "%s", e.text);
    else {
        ck_assert_msg(g != NULL, "%s", e.text);
        ck_assert_int_eq(frozen_of(g), frozen[_i].frozen);
    }
    graph_free(g);
}
END_TEST

START_TEST(below_the_lowest_trained_layer_are_no_gradients)
{
    struct err e = {0};
    struct graph *g = net("freeze = {conv1, bn1, layer1, \"layer2.0.conv1\"}", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    for (int i = 0; i < g->n_nodes; i++) {
        bool below = i <= graph_node_find(g, "layer2.0.conv1");
        ck_assert_msg(g->tensor[g->node[i].out].needs_grad == !below, "%s", g->node[i].name);
        bool fixed = below && !strcmp(g->node[i].op->name, "batch_norm");
        ck_assert_msg(g->node[i].fixed == fixed, "%s", g->node[i].name);
    }
    graph_free(g);
    g = net("freeze = {\"bn1.weight\"}", &e);             /* half of one */
    ck_assert(!g->node[graph_node_find(g, "bn1")].fixed);
    graph_free(g);
}
END_TEST

START_TEST(factors)
{
    struct err e = {0};
    struct graph *g = net("learning_rate_factors = {\"layer1=0.5\", \"layer1.1=0.25\", \"fc=10\"} "
                          "weight_decay_factors = {\"*.bias=0\", \"BatchNorm*=0\"}", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert(g->param[param_find(g, "layer1.0.conv1.weight")].lr_factor == 0.5);
    ck_assert(g->param[param_find(g, "layer1.1.conv1.weight")].lr_factor == 0.25);
    ck_assert(g->param[param_find(g, "fc.bias")].lr_factor == 10);
    ck_assert(g->param[param_find(g, "conv1.weight")].lr_factor == 1);
    ck_assert(g->param[param_find(g, "fc.bias")].decay_factor == 0);
    ck_assert(g->param[param_find(g, "bn1.weight")].decay_factor == 0);
    ck_assert(g->param[param_find(g, "fc.weight")].decay_factor == 1);
    graph_free(g);
}
END_TEST

static const struct { const char *train, *text; } wrong[] = {
    {"freeze = {layerr1}", "t.conf:1: train.freeze: \"layerr1\" matches no weight, nor a layer or class that has "
                           "weights (did you mean layer1?)"},
    {"freeze = {\"BatchNorm\"}", "BatchNorm2d?)"},
    {"freeze = {\"*\"}", "t.conf:1: train.freeze:"},
    {"learning_rate_factors = {layer1}", "t.conf:1: train.learning_rate_factors: \"layer1\": expected PATTERN=FACTOR"},
    {"learning_rate_factors = {\"layer1=x\"}", "expected PATTERN=FACTOR"},
    {"learning_rate_factors = {\"layer1=-1\"}", "expected PATTERN=FACTOR"},
    {"learning_rate_factors = {\"=1\"}", "expected PATTERN=FACTOR"},
    {"weight_decay_factors = {\"fcc=0\"}", "t.conf:1: train.weight_decay_factors: \"fcc\""},
};

START_TEST(what_matches_nothing_is_refused)
{
    struct err e = {0};
    ck_assert_ptr_null(net(wrong[_i].train, &e));
    ck_assert_int_eq(e.code, E_CONF);
    ck_assert_msg(says(e.text, wrong[_i].text), "%s", e.text);
}
END_TEST

/* Graph text freezes by patterns, too, of the weights so far, and prints each. */
START_TEST(text_freezes_by_pattern)
{
    struct graph *g = parse("input x 4\na.b = linear(x) features=4\nfreeze a\na.c = linear(a.b) features=4\n"
                            "d = linear(a.c) features=4\nfreeze d.*\n");
    struct text t = {0};
    ck_assert_int_eq(frozen_of(g), 4);
    graph_print(g, &t);
    ck_assert(strstr(t.s, "freeze a.b.weight\n") && strstr(t.s, "freeze d.bias\n"));
    text_free(&t);
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("groups");
    tcase_add_loop_test(t, patterns, 0, (int)(sizeof frozen / sizeof *frozen));
    tcase_add_test(t, below_the_lowest_trained_layer_are_no_gradients);
    tcase_add_test(t, factors);
    tcase_add_loop_test(t, what_matches_nothing_is_refused, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(t, text_freezes_by_pattern);
    return suite_run("groups", CK_FORK, t);
}
