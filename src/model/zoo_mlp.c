/* toy: the tutorial's two layers, 10 -> 10 -> ReLU -> 5. mlp: hidden layers of given widths, ReLU, dropout. */
#include <stdio.h>
#include "model/zoo.h"

static int toy_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    const struct zoo_at z = {b, ""};
    int t = zoo_add(&z, input, "linear", "net1", "features=10");
    t = zoo_add(&z, t, "relu", "relu", " ");
    return zoo_add(&z, t, "linear", "net2", "features=%lld", (long long)classes);
}

static int mlp_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    static const struct conf_ints usual = {2, {256, 128}};
    const struct conf_ints *hidden = c->model.hidden.n ? &c->model.hidden : &usual;
    const struct zoo_at z = {b, ""};
    const struct shape *s = graph_shape(b, input);
    char name[32];
    int t = s && s->n > 1 ? graph_add1(b, "flatten", "flatten", "Flatten", "", input) : input;
    for (int i = 0; i < hidden->n; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        t = zoo_add(&z, t, "linear", name, "features=%lld", (long long)hidden->v[i]);
        snprintf(name, sizeof name, "relu%d", i + 1);
        t = zoo_add(&z, t, "relu", name, " ");
        if (!(c->model.dropout > 0)) continue;
        snprintf(name, sizeof name, "dropout%d", i + 1);
        t = zoo_add(&z, t, "dropout", name, "p=%.17g", c->model.dropout);
    }
    snprintf(name, sizeof name, "fc%d", hidden->n + 1);
    return zoo_add(&z, t, "linear", name, "features=%lld", (long long)classes);
}

const struct zoo_kind zoo_mlp[] = {
    {"toy", "Linear(10, 10), ReLU, Linear(10, 5)", 1, {10}, false, 5, toy_build},
    {"mlp", "linear layers of model.hidden widths with ReLU and dropout", 3, {1, 28, 28}, true, 10, mlp_build},
    {NULL},
};
