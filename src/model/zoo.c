/* From configuration to graph: a network of the zoo or graph text, the labels it is compared with, and the loss. */
#include <string.h>
#include "model/graph_int.h"
#include "model/zoo.h"

static const struct zoo_kind *const families[] = {zoo_mlp, zoo_resnet};

static const struct zoo_kind *zoo_find(const char *name)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const struct zoo_kind *k = families[f]; k->name; k++) if (!strcmp(k->name, name)) return k;
    return NULL;
}

static const char *loss_op(const struct conf *c)
{
    return !strcmp(c->train.loss, "mse") ? "mse" : "softmax_cross_entropy";
}

/* Files hold classes, unless data.labels says otherwise. */
static bool labels_class(const struct conf *c) { return c->data.labels ? !strcmp(c->data.labels, "class") : true; }

int graph_loss(struct graph_builder *b, const char *op, bool is_class, int output)
{
    const struct shape *s = graph_shape(b, output);
    if (!s) return -1;
    int in[2] = {output, b->labels};
    struct shape like = is_class ? (struct shape){0} : *s;  /* a copy: adding a tensor moves the others */
    if (in[1] < 0) in[1] = graph_input(b, "labels", &like, is_class ? I64 : F32);
    return in[1] < 0 ? -1 : graph_add(b, op, "loss", NULL, "", 2, in);
}

static struct graph *zoo_build(const struct conf *c, const struct zoo_kind *k, struct err *e)
{
    struct shape s = {.n = k->input_n};
    if (c->model.input.n > MAX_DIMS) {
        conf_error(c, "model.input", e, "more than %d dimensions", MAX_DIMS);
        return NULL;
    }
    memcpy(s.d, k->input, sizeof k->input);
    if (c->model.input.n) {
        s.n = c->model.input.n;
        for (int i = 0; i < s.n; i++) s.d[i] = c->model.input.v[i];
    }
    struct graph_builder *b = graph_begin(k->name, NULL);
    int out = k->build(b, k, c, graph_input(b, "input", &s, F32), c->model.classes ? c->model.classes : k->classes);
    struct graph *g = graph_finish(b, out, graph_loss(b, loss_op(c), labels_class(c), out), e);
    if (!g && e && e->code == E_CONF) {
        struct err inner = *e;
        *e = (struct err){0};
        conf_error(c, "model.network", e, "%s", inner.text);
    }
    return g;
}

/* Graph text decides how many classes there are: its output's first dimension. */
static int classes_check(const struct conf *c, const struct graph *g, struct err *e)
{
    const struct shape *out = g->output >= 0 ? &g->tensor[g->output].shape : NULL;
    if (!c->model.classes || !out || !out->n || out->d[0] == c->model.classes) return 0;
    return conf_error(c, "model.classes", e, "the graph decides, and its output has %lld", (long long)out->d[0]);
}

struct graph *model_build(const struct conf *c, struct err *e)
{
    if (c->model.network) {
        const struct zoo_kind *k = zoo_find(c->model.network);
        if (k) return zoo_build(c, k, e);
        conf_error(c, "model.network", e, "there is no network \"%s\"", c->model.network);
        return NULL;
    }
    struct text t = {0};
    struct graph *g = NULL;
    if (!text_read_file(&t, c->model.graph, 16 << 20, e))
        g = graph_parse_loss(c->model.graph, t.s, t.n, loss_op(c), labels_class(c), e);
    text_free(&t);
    if (g && classes_check(c, g, e)) {
        graph_free(g);
        return NULL;
    }
    return g;
}
