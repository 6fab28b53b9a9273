#include <stdio.h>
#include <string.h>
#include "model_rig.h"

struct graph *built(const char *conf, struct err *e)
{
    struct conf *c = conf_parse("t.conf", conf, strlen(conf), e);
    ck_assert_msg(c && !conf_finish(c, e), "%s", e->text);
    struct graph *g = model_build(c, e);
    conf_free(c);
    return g;
}

struct graph *model(const char *conf)
{
    struct err e = {0};
    char s[600];
    const bool map = strstr(conf, "network = unet") || strstr(conf, "network = vnet");   /* its output is no class */
    snprintf(s, sizeof s, "%s data { source = synthetic%s } train { batch_size = 4  steps = 1%s }", conf,
             map ? "  labels = vector" : "", map ? "  loss = mse" : "");
    struct graph *g = built(s, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

struct graph *network(const char *name)
{
    char s[100];
    snprintf(s, sizeof s, "model { network = %s }", name);
    return model(s);
}

struct graph *parse(const char *s)
{
    struct err e = {0};
    struct graph *g = graph_parse("t.graph", s, strlen(s), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

int tensor_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_tensors; i++) if (!strcmp(g->tensor[i].name, name)) return i;
    ck_abort_msg("no tensor %s", name);
    return -1;
}

int param_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++) if (!strcmp(g->param[i].name, name)) return i;
    ck_abort_msg("no parameter %s", name);
    return -1;
}
