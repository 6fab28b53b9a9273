/* toy: the tutorial's two layers, 10 -> 10 -> ReLU -> 5. mlp: hidden layers of given widths, ReLU, dropout. */
#include <stdio.h>
#include "model/zoo.h"

static int toy_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    char attrs[64];
    snprintf(attrs, sizeof attrs, "features=%lld", (long long)classes);
    int t = graph_add1(b, "linear", "net1", "Linear", "features=10", input);
    t = graph_add1(b, "relu", "relu", "ReLU", "", t);
    return graph_add1(b, "linear", "net2", "Linear", attrs, t);
}

static int mlp_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    static const struct conf_ints usual = {2, {256, 128}};
    const struct conf_ints *hidden = c->model.hidden.n ? &c->model.hidden : &usual;
    char name[32], attrs[64];
    int t = input;
    const struct shape *s = graph_shape(b, t);
    if (s && s->n > 1) t = graph_add1(b, "flatten", "flatten", "Flatten", "", t);
    for (int i = 0; i < hidden->n; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        snprintf(attrs, sizeof attrs, "features=%lld", (long long)hidden->v[i]);
        t = graph_add1(b, "linear", name, "Linear", attrs, t);
        snprintf(name, sizeof name, "relu%d", i + 1);
        t = graph_add1(b, "relu", name, "ReLU", "", t);
        if (!(c->model.dropout > 0)) continue;
        snprintf(name, sizeof name, "dropout%d", i + 1);
        snprintf(attrs, sizeof attrs, "p=%.17g", c->model.dropout);
        t = graph_add1(b, "dropout", name, "Dropout", attrs, t);
    }
    snprintf(name, sizeof name, "fc%d", hidden->n + 1);
    snprintf(attrs, sizeof attrs, "features=%lld", (long long)classes);
    return graph_add1(b, "linear", name, "Linear", attrs, t);
}

const struct zoo_kind zoo_mlp[] = {
    {"toy", "Linear(10, 10), ReLU, Linear(10, 5)", 1, {10}, false, 5, toy_build},
    {"mlp", "linear layers of model.hidden widths with ReLU and dropout", 3, {1, 28, 28}, true, 10, mlp_build},
    {NULL},
};
