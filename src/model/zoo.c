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

static const char *loss_op(const struct conf *c) { return !strcmp(c->train.loss, "mse") ? "mse" : "softmax_cross_entropy"; }

/* Labels as the loss wants them: a class, or a vector like the output. Files hold what they hold: classes, unless labels say otherwise. */
static int labels_add(struct graph_builder *b, const struct conf *c, int output)
{
    const struct shape *s = graph_shape(b, output);
    if (!s) return -1;
    bool is_class = c->data.labels ? !strcmp(c->data.labels, "class") : true;
    return is_class ? graph_input(b, "labels", &(struct shape){0}, I64) : graph_input(b, "labels", s, F32);
}

static int loss_add(struct graph_builder *b, const struct conf *c, int output)
{
    int in[2] = {output, labels_add(b, c, output)};
    return graph_add(b, loss_op(c), "loss", NULL, "", 2, in);
}

static struct graph *zoo_build(const struct conf *c, const struct zoo_kind *k, struct err *e)
{
    struct shape s = {.n = k->input_n};
    memcpy(s.d, k->input, sizeof k->input);
    if (c->model.input.n) {
        s.n = c->model.input.n < MAX_DIMS ? c->model.input.n : MAX_DIMS;
        for (int i = 0; i < s.n; i++) s.d[i] = c->model.input.v[i];
    }
    struct graph_builder *b = graph_begin(k->name, NULL);
    int out = k->build(b, k, c, graph_input(b, "input", &s, F32), c->model.classes ? c->model.classes : k->classes);
    struct graph *g = graph_finish(b, out, loss_add(b, c, out), e);
    if (!g && e && e->code == E_CONF) {
        struct err inner = *e;
        *e = (struct err){0};
        conf_error(c, "model.network", e, "%s", inner.text);
    }
    return g;
}

/* Graph text without a loss gets the configured one: the text is printed, the loss is appended, and it is read again. */
static struct graph *loss_append(struct graph *g, const struct conf *c, struct err *e)
{
    char s[96];
    struct text t = {0};
    const struct tensor *out = &g->tensor[g->output];
    bool is_class = c->data.labels ? !strcmp(c->data.labels, "class") : true;
    graph_print(g, &t);
    if (g->labels < 0) {
        struct text with = {0};
        const char *rest = strchr(strchr(t.s, '\n') + 1, '\n') + 1;
        text_add_bytes(&with, t.s, (size_t)(rest - t.s));
        text_add(&with, "labels labels %s\n", is_class ? "class" : shape_text(&out->shape, s));
        text_add(&with, "%s", rest);
        text_free(&t);
        t = with;
    }
    text_add(&t, "loss = %s(%s, %s)\nloss loss\n", loss_op(c), out->name, g->labels < 0 ? "labels" : g->tensor[g->labels].name);
    struct graph *whole = graph_parse(g->file, t.s, t.n, e);
    text_free(&t);
    graph_free(g);
    return whole;
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
    if (!text_read_file(&t, c->model.graph, 16 << 20, e)) g = graph_parse(c->model.graph, t.s, t.n, e);
    text_free(&t);
    return g && g->loss < 0 ? loss_append(g, c, e) : g;
}
