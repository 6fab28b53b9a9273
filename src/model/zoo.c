/* From configuration to graph: a network of the zoo or graph text, its labels, and the loss. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "base/suggest.h"
#include "model/decoder.h"
#include "model/graph_int.h"
#include "model/onnx/onnx.h"
#include "model/zoo.h"

#define ZOO_FAMILY(x) extern const struct zoo_kind zoo_##x[];
#include "registry.inc"
const struct zoo_kind *const zoo_list[] = {
#define ZOO_FAMILY(x) zoo_##x,
#include "registry.inc"
    NULL
};

static const struct zoo_kind *zoo_find(const char *name)
{
    for (int f = 0; zoo_list[f]; f++)
        for (const struct zoo_kind *k = zoo_list[f]; k->name; k++) if (!strcmp(k->name, name)) return k;
    return NULL;
}

/* Operators of train.loss. */
static const char *const loss_op_of[] = {
    [LOSS_CROSS_ENTROPY] = "softmax_cross_entropy", [LOSS_MSE] = "mse", [LOSS_DICE] = "dice",
    [LOSS_DICE_CE] = "dice_ce"};
enum { N_LOSSES = sizeof loss_op_of / sizeof *loss_op_of };

static const char *loss_op(const struct conf *c)
{
    return loss_op_of[c->train.loss ? c->train.loss : LOSS_CROSS_ENTROPY];
}

/* UNSET: none of them. */
static enum loss_word loss_of(const struct graph *g)
{
    for (int i = 1; g->loss_op && i < N_LOSSES; i++)
        if (!strcmp(g->loss_op->name, loss_op_of[i])) return (enum loss_word)i;
    return loss_word_unset;
}

const char *model_loss(const struct graph *g)
{
    switch (loss_of(g)) {
    WORDS_LOSS(WORD_CASE)
    default: return NULL;
    }
}

/* Files hold classes unless data.labels is something else. */
static bool labels_class(const struct conf *c) { return !c->data.labels || c->data.labels == LABELS_CLASS; }

static bool labels_map(const struct conf *c) { return c->data.labels == LABELS_MAP; }

static bool dice_is(const char *op) { return !strncmp(op, "dice", 4); }

enum { LOSS_ATTRS = 64 };
/* buf: receives the attributes */
static struct graph_ends ends_of(const struct conf *c, char buf[LOSS_ATTRS])
{
    const char *op = loss_op(c);
    *buf = 0;
    if (c->train.label_smoothing > 0) snprintf(buf, LOSS_ATTRS, "smoothing=%.17g", c->train.label_smoothing);
    if (dice_is(op))
        snprintf(buf, LOSS_ATTRS, "power=%d background=%s", (int)c->train.dice_power,
                 c->train.dice_background ? "yes" : "no");
    return (struct graph_ends){op, buf, labels_class(c), labels_map(c), &c->train.scores};
}

int graph_end(struct graph_builder *b, const struct graph_ends *ends, int output)
{
    if (!b->predicts) return graph_loss(b, ends, output);
    b->loss_op = op_find(ends->loss);
    return -1;
}

/* Whether one of n nodes has this operator. */
static bool among(const struct node *node, int n, const char *op)
{
    for (int i = 0; i < n; i++) if (!strcmp(node[i].op->name, op)) return true;
    return false;
}

int graph_loss(struct graph_builder *b, const struct graph_ends *ends, int output)
{
    const struct shape *s = graph_shape(b, output);
    if (!s) return -1;
    int target = builder_first(b, ROLE_TARGET);
    struct shape like = ends->labels_class ? (struct shape){0} : *s;  /* a copy: adding a tensor moves the others */
    enum dtype type = ends->labels_class ? I64 : F32;
    if (ends->labels_map) {                              /* a byte per point, if it can hold the class */
        enum { BYTE = 256 };
        if (s->n < 2) return graph_fail(b, "labels are a map of classes, and the output has no points");
        type = s->d[0] <= BYTE ? U8 : I32;
        like.n = s->n - 1;
        memcpy(like.d, s->d + 1, sizeof *like.d * (size_t)like.n);
    }
    if (target < 0) target = graph_input(b, "labels", ROLE_TARGET, &like, type);
    if (target < 0) return -1;
    for (int i = 0; i < ends->scores->n; i++) {
        const char *op = ends->scores->v[i];
        if (!among(b->node.v, b->node.n, op)) graph_add2(b, op, op, output, target);
    }
    return graph_add(b, &(struct graph_node){ends->loss, "loss", NULL, ends->attrs, 2, {output, target}});
}

static bool is_score(const struct op_kind *k) { return k->rows && !k->is_loss; }

/* train.scores names operators that are scores. */
static int scores_known(const struct conf *c, struct err *e)
{
    for (int i = 0; i < c->train.scores.n; i++) {
        const char *word = c->train.scores.v[i];
        const struct op_kind *k = op_find(word);
        if (k && is_score(k)) continue;
        char hint[SUGGEST_TEXT];
        struct text all = {0};
        struct suggest near = suggest_begin(word, strlen(word));
        for (int j = 0; op_list[j]; j++) {
            if (!is_score(op_list[j])) continue;
            suggest_try(&near, op_list[j]->name, strlen(op_list[j]->name), 0);
            text_add(&all, "%s%s", all.n ? ", " : "", op_list[j]->name);
        }
        conf_error(c, "train.scores", e, "there is no score \"%.60s\", only %s%s", word, all.s,
                   suggest_text(&near, "", hint));
        text_free(&all);
        return -1;
    }
    return 0;
}

static int input_check(const struct conf *c, const struct zoo_kind *k, struct err *e)
{
    char like[96];
    int n = c->model.input.n;
    if (n > MAX_DIMS) return conf_error(c, "model.input", e, "more than %d dimensions", MAX_DIMS);
    if (!n || n == k->input_n || k->any_input) return 0;
    struct shape s = {.n = k->input_n};
    memcpy(s.d, k->input, sizeof k->input);
    return conf_error(c, "model.input", e, "%d number%s, but %s takes %d, as in %s", n, n == 1 ? "" : "s", k->name,
                      k->input_n, shape_text(&s, like));
}

/* Frees the graph and returns NULL if its groups are wrong. */
static struct graph *groups_check(struct graph *g, const struct err *groups, struct err *e)
{
    if (!groups->code) return g;
    if (e) *e = *groups;
    graph_free(g);
    return NULL;
}

static struct graph *zoo_build(const struct conf *c, const struct zoo_kind *k, struct err *e)
{
    struct shape s = {.n = k->input_n};
    if (input_check(c, k, e)) return NULL;
    memcpy(s.d, k->input, sizeof k->input);
    if (c->model.input.n) {
        s.n = c->model.input.n;
        for (int i = 0; i < s.n; i++) s.d[i] = c->model.input.v[i];
    }
    struct graph_builder *b = graph_begin(k->name, NULL);
    int in = graph_input(b, "input", ROLE_SAMPLE, &s, F32);
    int out = k->build(b, k, c, in, c->model.classes ? c->model.classes : k->classes);
    char attrs[LOSS_ATTRS];
    const struct graph_ends ends = ends_of(c, attrs);
    b->predicts = conf_predicts(c);
    int loss = graph_end(b, &ends, out);
    struct err groups = {0};
    groups_apply(b, c, NULL, &out, &groups);
    struct graph *g = groups_check(graph_finish(b, out, loss, e), &groups, e);
    if (!g && !groups.code && e && e->code == E_CONF) {
        struct err inner = *e;
        *e = (struct err){0};
        conf_error(c, "model.network", e, "%s", inner.text);
    }
    return g;
}

/* For a graph with a loss. */
static const struct node *loss_node(const struct graph *g) { return &g->node[g->tensor[g->loss].producer]; }

static double smoothing_of(const struct graph *g)
{
    const struct node *n = loss_node(g);
    return !strcmp(n->op->name, loss_op_of[LOSS_CROSS_ENTROPY]) ? n->attr[op_attr(n->op, "smoothing")].r : 0;
}

/* Checks the configured options of Dice. */
static int dice_check(const struct conf *c, const struct graph *g, struct err *e)
{
    const struct { const char *key, *attr; int64_t wants; } both[] = {
        {"train.dice_power", "power", c->train.dice_power},
        {"train.dice_background", "background", c->train.dice_background}};
    const struct node *n = loss_node(g);
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        if (!conf_differs(c, both[i].key)) continue;
        if (!dice_is(n->op->name))
            return conf_error(c, both[i].key, e, "is for dice and dice_ce, and the loss is %s", n->op->name);
        const int k = op_attr(n->op, both[i].attr);
        const int64_t has = n->attr[k].i[0];
        if (has == both[i].wants) continue;
        if (n->op->attr[k].type == A_BOOL)
            return conf_error(c, both[i].key, e, "the graph decides, and its loss has %s=%s", both[i].attr,
                              has ? "yes" : "no");
        return conf_error(c, both[i].key, e, "the graph decides, and its loss has %s=%d", both[i].attr, (int)has);
    }
    return 0;
}

/* Graph text decides; the configuration may only agree. Classes are the first dimension of the output. */
static int decided_check(const struct conf *c, const struct graph *g, struct err *e)
{
    char has[96];
    const struct shape *in = &g->tensor[graph_input_first(g, ROLE_SAMPLE)].shape, *out = &g->tensor[g->output].shape;
    const char *loss = model_loss(g);
    bool same = in->n == c->model.input.n;
    for (int i = 0; same && i < in->n; i++) same = in->d[i] == c->model.input.v[i];
    if (c->model.input.n && !same)
        return conf_error(c, "model.input", e, "the graph decides, and its input is %s", shape_text(in, has));
    if (c->model.classes && out->n && out->d[0] != c->model.classes)
        return conf_error(c, "model.classes", e, "the graph decides, and its output has %lld", (long long)out->d[0]);
    if (c->train.loss && loss && c->train.loss != loss_of(g))
        return conf_error(c, "train.loss", e, "the graph decides, and its loss is %s", loss);
    if (g->loss < 0) return 0;
    if (c->train.label_smoothing > 0 && smoothing_of(g) != c->train.label_smoothing)
        return conf_error(c, "train.label_smoothing", e, "the graph decides, and its loss has smoothing %g",
                          smoothing_of(g));
    if (dice_check(c, g, e)) return -1;
    for (int i = 0; i < c->train.scores.n; i++)
        if (!among(g->node, g->n_nodes, c->train.scores.v[i]))
            return conf_error(c, "train.scores", e, "the graph decides, and it has a loss, but no %s: add it "
                              "there, or leave its loss out", c->train.scores.v[i]);
    return 0;
}

/* A text without a loss gets the configured one. If that does not fit, the error names the configuration. */
static struct graph *text_build(const struct conf *c, const struct text *t, struct err *e)
{
    struct err own = {0};
    char attrs[LOSS_ATTRS];
    const struct graph_ends ends = ends_of(c, attrs);
    struct err groups = {0};
    const struct graph_given given = {c->model.graph, t->n ? t->s : "", t->n, &ends, c};
    struct graph *g = groups_check(graph_parse_given(&given, &groups, &own), &groups, e);
    if (groups.code) return NULL;
    if (own.code == E_CONF) conf_error(c, "train.loss", e, "%s", own.text);
    else if (own.code) err_set(e, own.code, "%s", own.text);
    return g;
}

/* Letters and digits of the file's name. */
static void name_of_file(const char *path, char out[64])
{
    const char *slash = strrchr(path, '/');
    snprintf(out, 64, "%.*s", 60, slash ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot && dot > out) *dot = 0;
    for (char *c = out; *c; c++) if (!isalnum((unsigned char)*c)) *c = '_';
}

/* An ONNX file decides the network and its output. */
static struct graph *onnx_graph(const struct conf *c, struct err *e)
{
    char name[64], attrs[LOSS_ATTRS];
    struct onnx_ask ask = {.predicts = conf_predicts(c)};
    struct onnx_net net = {-1, -1};
    struct err own = {0}, groups = {0};
    const struct graph_ends ends = ends_of(c, attrs);
    for (int i = 0; i < c->model.input.n && i < MAX_DIMS; i++) ask.input.d[ask.input.n++] = c->model.input.v[i];
    name_of_file(c->model.graph, name);
    struct graph_builder *b = graph_begin(name, NULL);
    b->predicts = ask.predicts;
    if (onnx_build(b, c->model.graph, &ask, &net, &own)) graph_fail(b, "%s", own.text);
    int loss = net.loss < 0 && !own.code && !b->loss_op ? graph_end(b, &ends, net.output) : net.loss;
    if (!own.code) groups_apply(b, c, NULL, &net.output, &groups);
    struct graph *g = groups_check(graph_finish(b, net.output, loss, e), &groups, e);
    if (!own.code) return g;
    *e = own;
    graph_free(g);
    return NULL;
}

static struct graph *decoder_graph(const struct conf *c, struct err *e)
{
    static const char *const foreign[] = {"model.classes", "model.hidden", "model.zero_init_residual",
                                          "model.small_stem", "train.label_smoothing"};
    struct decoder d;
    struct err groups = {0};
    int loss;
    if (decoder_of(c, &d, e)) return NULL;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (!conf_differs(c, foreign[i])) continue;
        conf_error(c, foreign[i], e, "a decoder has none");
        return NULL;
    }
    if (c->train.loss && c->train.loss != LOSS_CROSS_ENTROPY) {
        conf_error(c, "train.loss", e, "a decoder's loss is cross_entropy");
        return NULL;
    }
    struct graph_builder *b = graph_begin(d.family->name, NULL);
    b->predicts = conf_predicts(c);
    b->coded = d.coded;
    int out = decoder_build(b, &d, c, c->run.generate ? 1 : c->model.input.v[0], &loss);
    groups_apply(b, c, "lm_head", &out, &groups);
    return groups_check(graph_finish(b, out, loss, e), &groups, e);
}

static int network_unknown(const struct conf *c, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct text all = {0};
    struct suggest near = suggest_begin(c->model.network, strlen(c->model.network));
    for (int f = 0; zoo_list[f]; f++)
        for (const struct zoo_kind *k = zoo_list[f]; k->name; k++) {
            suggest_try(&near, k->name, strlen(k->name), 0);
            text_add(&all, "%s%s", all.n ? ", " : "", k->name);
        }
    for (const struct decoder_family *f = decoder_families; f->name; f++) {
        suggest_try(&near, f->name, strlen(f->name), 0);
        text_add(&all, ", %s", f->name);
    }
    conf_error(c, "model.network", e, "there is no network \"%s\"%s, only %s", c->model.network,
               suggest_text(&near, "", hint), all.s);
    text_free(&all);
    return -1;
}

struct graph *model_build(const struct conf *c, struct err *e)
{
    if (scores_known(c, e)) return NULL;
    if (decoder_is(c)) return decoder_graph(c, e);
    const struct zoo_kind *k = c->model.network ? zoo_find(c->model.network) : NULL;
    if (c->model.network && !k) {
        network_unknown(c, e);
        return NULL;
    }
    if (c->run.generate || c->generate.every_steps) {
        conf_error(c, c->run.generate ? "run.generate" : "generate.every_steps", e,
                   "the network is no decoder (mpstaged(8), LANGUAGE MODELS)");
        return NULL;
    }
    if (decoder_setting(c)) {
        conf_error(c, decoder_setting(c), e, "is for decoders: model.network = llama, mistral, qwen2, qwen3 or gpt2");
        return NULL;
    }
    if (k) return zoo_build(c, k, e);
    struct text t = {0};
    struct graph *g = NULL;
    if (onnx_is(c->model.graph)) g = onnx_graph(c, e);
    else if (!text_read_file(&t, c->model.graph, 16 << 20, e)) g = text_build(c, &t, e);
    text_free(&t);
    if (g && decided_check(c, g, e)) {
        graph_free(g);
        return NULL;
    }
    return g;
}
