/* Graph text: its meaning and its inverse, what it and a configuration decide together, errors of hostile text. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "model/zoo.h"
#include "model_rig.h"

static const char all_statements[] =
    "graph all\n# a comment\ninput x 2x6x6   # and one behind\r\nlabels t 3\n\n"
    "c = conv(x) channels=4 kernel=3x2 layer=Conv2d padding=1\nd = conv(x) channels=4 kernel=3x2 padding=1 "
    "bias=no\n\tinit d.weight normal 0.125\n"
    "tie d.weight c.weight\nfreeze c.bias\nb = batch_norm(c) eps=0.001\ninit b.weight zero\ns = add(b, d, "
    "d)\ncontainer block Pair s\n"
    "p = max_pool(s) kernel=2 stride=2\nq\t=\tavg_pool(p)\tkernel=2\nm = global_avg_pool(q)\nf = flatten(m)\no = "
    "dropout(f) p=0.1\ny = linear(o) features=3\n"
    "loss = mse(y, t)\noutput y\nloss loss\n";

/* Everything that the text can say, and the text itself. */
static void same(const struct graph *a, const struct graph *b)
{
    struct text s = {0}, t = {0};
    graph_print(a, &s);
    graph_print(b, &t);
    ck_assert_str_eq(s.s, t.s);
    ck_assert(a->n_nodes == b->n_nodes && a->n_params == b->n_params && a->n_tensors == b->n_tensors &&
              a->n_containers == b->n_containers);
    for (int i = 0; i < a->n_nodes; i++) {
        const struct node *p = &a->node[i], *q = &b->node[i];
        ck_assert_str_eq(p->name, q->name);
        ck_assert_ptr_eq(p->op, q->op);
        ck_assert_int_eq(memcmp(p->attr, q->attr, sizeof p->attr), 0);
        ck_assert(!p->layer == !q->layer && (!p->layer || !strcmp(p->layer, q->layer)));
        ck_assert(p->n_in == q->n_in && p->n_param == q->n_param);
        for (int k = 0; k < p->n_in; k++) ck_assert_str_eq(a->tensor[p->in[k]].name, b->tensor[q->in[k]].name);
        ck_assert_int_eq(memcmp(p->param, q->param, sizeof p->param), 0);
        ck_assert(shape_equal(&a->tensor[p->out].shape, &b->tensor[q->out].shape) &&
                  a->tensor[p->out].needs_grad == b->tensor[q->out].needs_grad);
    }
    for (int i = 0; i < a->n_params; i++) {
        const struct param *p = &a->param[i], *q = &b->param[i];
        ck_assert_str_eq(p->name, q->name);
        ck_assert(shape_equal(&p->shape, &q->shape) && p->init == q->init && p->scale == q->scale &&
                  p->frozen == q->frozen && p->n_uses == q->n_uses);
    }
    ck_assert_str_eq(a->tensor[a->output].name, b->tensor[b->output].name);
    text_free(&s);
    text_free(&t);
}

static void round_trip(struct graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    struct graph *again = parse(t.s);
    same(g, again);
    text_free(&t);
    graph_free(again);
    graph_free(g);
}

START_TEST(text_round_trip)
{
    static const char *const name[] = {"toy", "mlp", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) round_trip(network(name[i]));
    for (int f = 0; zoo_list[f]; f++) round_trip(network(zoo_list[f]->name));
    round_trip(parse("input x 4\na = linear(x) features=4\nb = linear(a) features=4\ninit a.bias constant 0.25\n"
                     "name b.weight own\ninit own constant 3\nfreeze own\ntie a.weight own\n"));
    round_trip(model("model { network = resnet18  zero_init_residual = yes  input = {1, 32, 32}  classes = 7 }"));
    round_trip(parse(all_statements));
}
END_TEST

START_TEST(text_statements)
{
    struct graph *g = parse(all_statements);
    int c = graph_node_find(g, "c"), d = graph_node_find(g, "d"), b = graph_node_find(g, "b");
    char s[96];
    ck_assert_str_eq(shape_text(&g->tensor[g->node[c].out].shape, s), "4x6x7");  /* kernel 3x2, padding 1: 6 and 7 */
    ck_assert_str_eq(g->node[c].layer, "Conv2d");
    /* attributes behind layer= count */
    ck_assert_int_eq(g->node[c].attr[op_attr(g->node[c].op, "padding")].i[0], 1);
    ck_assert_int_eq(g->node[c].param[0], g->node[d].param[0]);
    const struct param *w = &g->param[g->node[c].param[0]];
    ck_assert(w->n_uses == 2 && w->use_node[0] == c && w->use_node[1] == d && w->use_slot[1] == 0);
    ck_assert_str_eq(w->name, "c.weight");
    ck_assert(g->param[param_find(g, "c.bias")].frozen && !w->frozen);
    ck_assert(g->node[b].attr[op_attr(g->node[b].op, "eps")].r == 0.001);
    ck_assert_int_eq(g->param[param_find(g, "b.weight")].init, INIT_ZERO);
    ck_assert_int_eq(g->node[b].line, 11);
    ck_assert_int_eq(g->tensor[g->node[d].out].n_readers, 2);   /* one node reads it twice */
    ck_assert_int_eq(g->container[0].end, graph_node_find(g, "s") + 1);
    graph_free(g);
}
END_TEST

/* A stride that is not given is the kernel, and is printed, so that the text says all and reads back. */
START_TEST(text_pool_strides)
{
    static const struct { const char *given, *printed, *shape;
    } of[] = {
        {"kernel=2", "p = max_pool(x) stride=2\n", "2x6x4"},
        {"kernel=3 stride=1", "p = max_pool(x) kernel=3 stride=1\n", "2x10x6"},
        {"", "p = max_pool(x) stride=2\n", "2x6x4"},
        {"kernel=3x2", "p = max_pool(x) kernel=3x2 stride=3x2\n", "2x4x4"},
        {"kernel=3 stride=2 padding=1", "p = max_pool(x) kernel=3 stride=2 padding=1\n", "2x6x4"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char s[200];
        struct text t = {0};
        snprintf(s, sizeof s, "input x 2x12x8\np = max_pool(x) %s\n", of[i].given);
        struct graph *g = parse(s);
        graph_print(g, &t);
        ck_assert_msg(strstr(t.s, of[i].printed) != NULL, "%s", t.s);
        ck_assert_str_eq(shape_text(&g->tensor[g->node[0].out].shape, s), of[i].shape);
        text_free(&t);
        round_trip(g);
    }
}
END_TEST

START_TEST(text_ties_take_the_first_name)
{
    static const char body[] =
        "input x 4\na = linear(x) features=4\nb = linear(a) features=4\nc = linear(b) features=4\n";
    static const char *const ties[] = {
        "tie b.weight a.weight\ntie c.weight a.weight\n", "tie a.weight b.weight\ntie c.weight a.weight\n",
        "tie c.weight b.weight\ntie a.weight b.weight\n", "tie b.weight c.weight\ntie b.weight a.weight\n",
        "tie a.weight b.weight\ntie b.weight c.weight\n", "tie c.weight b.weight\ntie c.weight a.weight\n"};
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        char s[300];
        snprintf(s, sizeof s, "%s%sfreeze c.weight\n", body, ties[i]);   /* by whichever of its names */
        struct graph *g = parse(s);
        ck_assert_int_eq(g->n_params, 4);                /* one weight, three biases */
        ck_assert(g->param[0].frozen);
        ck_assert_str_eq(g->param[0].name, "a.weight");
        ck_assert_int_eq(g->param[0].n_uses, 3);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(g->param[0].use_node[k], k);
        round_trip(g);
    }
}
END_TEST

START_TEST(text_what_is_left_out)
{
    struct graph *g = parse("input x 4\nlabels t class\na = linear(x) features=3\nl = softmax_cross_entropy(a, t)\n");
    ck_assert_str_eq(g->tensor[g->output].name, "a");
    ck_assert_str_eq(g->tensor[g->loss].name, "l");
    graph_free(g);
    g = parse("input x 4\na = linear(x) features=3\n");
    ck_assert(g->loss == -1 && graph_input_first(g, ROLE_TARGET) == -1 && !strcmp(g->tensor[g->output].name, "a"));
    graph_free(g);
}
END_TEST

static char *file_with(const char *s)
{
    static char name[] = "t_model.XXXXXX";
    int fd = mkstemp(strcpy(name, "t_model.XXXXXX"));
    FILE *f = fdopen(fd, "w");
    ck_assert(f != NULL && fputs(s, f) >= 0 && !fclose(f));
    return name;
}

/* A graph file of a configuration gets the configured loss and labels, and nodes keep the lines of the file. */
START_TEST(text_in_configuration)
{
    static const char *const labels[] = {"class", "onehot"};
    for (int i = 0; i < 2; i++) {
        const char *file = file_with("# first\ninput x 4\n\na = linear(x) features=3\n");
        char s[200];
        snprintf(s, sizeof s,
                 "model { graph = \"%s\" } data { source = synthetic  labels = %s } train { loss = mse  batch_size = 2 "
                 " steps = 1 }",
                 file, labels[i]);
        struct err e = {0};
        struct graph *g = built(s, &e);
        ck_assert_msg(g != NULL, "%s", e.text);
        ck_assert_str_eq(g->node[1].op->name, "mse");
        ck_assert_int_eq(g->node[0].line, 4);
        ck_assert_int_eq(g->tensor[graph_input_first(g, ROLE_TARGET)].type, i ? F32 : I64);
        ck_assert_int_eq(g->tensor[graph_input_first(g, ROLE_TARGET)].shape.n, i);
        round_trip(g);
        unlink(file);
    }
}
END_TEST

/* What a configuration says beside a graph must be what the graph says. */
static const struct { const char *model, *train, *message; } beside[] = {
    {"classes = 3 input = {4}", "loss = mse", NULL}, {"", "", NULL},
    {"classes = 4", "", "t.conf:1: model.classes:|3"},
    {"input = {5}", "", "t.conf:1: model.input:|4"},
    {"input = {4, 1}", "", "t.conf:1: model.input:|4"},
    {"", "loss = cross_entropy", "t.conf:1: train.loss: the graph decides, and its loss is mse"},
    {"", "label_smoothing = 0.1",
     "t.conf:1: train.label_smoothing:|0"},
};

START_TEST(text_decides)
{
    const char *file = file_with("input x 4\nlabels t class\na = linear(x) features=3\nl = mse(a, t)\n");
    char s[300];
    struct err e = {0};
    snprintf(s, sizeof s, "model { graph = \"%s\" %s } data { source = synthetic } train { steps = 1 %s }", file,
             beside[_i].model, beside[_i].train);
    struct graph *g = built(s, &e);
    unlink(file);
    if (beside[_i].message) {
        ck_assert_ptr_null(g);
        ck_assert_msg(says(e.text, beside[_i].message), "%s", e.text);
        ck_assert_int_eq(e.code, E_CONF);
    } else {
        ck_assert_msg(g != NULL, "%s", e.text);
        ck_assert_str_eq(model_loss(g), "mse");
    }
    graph_free(g);
}
END_TEST

/* Options of Dice beside a loss of the text's own, or one that is no Dice. */
static const struct { const char *loss, *train, *message; } dices[] = {
    {"l = dice(a, t) power=2 background=no\n", "dice_power = 2 dice_background = no", NULL},
    {"l = dice_ce(a, t) power=2\n", "", NULL},
    {"", "loss = dice dice_power = 2", NULL},
    {"l = dice(a, t)\n", "dice_power = 2",
     "t.conf:1: train.dice_power: the graph decides, and its loss has power=1"},
    {"l = dice_ce(a, t) power=2\n", "loss = dice_ce dice_background = no",
     "t.conf:1: train.dice_background: the graph decides, and its loss has background=yes"},
    {"l = softmax_cross_entropy(a, t)\n", "dice_background = no",
     "t.conf:1: train.dice_background:|dice_ce|softmax_cross_entropy"},
    {"", "dice_power = 2", "t.conf:1: train.dice_power:|dice_ce|softmax_cross_entropy"},
};

START_TEST(text_decides_dice)
{
    char s[300], text[200];
    struct err e = {0};
    snprintf(text, sizeof text, "input x 1x6x5\nlabels t 6x5 U8\na = conv(x) channels=3 kernel=1\n%s", dices[_i].loss);
    const char *file = file_with(text);
    snprintf(s, sizeof s, "model { graph = \"%s\" } data { source = synthetic labels = map } train { steps = 1 %s }",
             file, dices[_i].train);
    struct graph *g = built(s, &e);
    unlink(file);
    ck_assert_msg((g != NULL) == !dices[_i].message, "%s", e.text);
    if (dices[_i].message) {
        ck_assert_msg(says(e.text, dices[_i].message), "%s", e.text);
        ck_assert_int_eq(e.code, E_CONF);
    }
    graph_free(g);
}
END_TEST

/* Output, labels and loss that a graph file has, or leaves to the configuration: what cannot be compared is refused, by
 * 65 where the file itself says it, by 78 where the configuration does. */
static const char flat[] = "f = flatten(c)\ny = linear(f) features=3\n", spatial[] = "";
static const struct {
    const char *tail, *labels, *text_loss, *data, *train;
    int code;
    const char *message;
} compared[] = {
    {flat, "", "", "class", "cross_entropy", 0, NULL},
    {flat, "", "", "onehot", "cross_entropy", 0, NULL},
    {flat, "", "", "class", "mse", 0, NULL},
    {flat, "", "", "onehot", "mse", 0, NULL},
    {flat, "", "", "vector", "mse", 0, NULL},
    {spatial, "", "", "vector", "mse", 0, NULL},
    {spatial, "labels t 4x5x7\n", "l = mse(c, t)\n", "vector", "mse", 0, NULL},
    {flat, "labels t class\n", "l = mse(y, t)\n", "class", "mse", 0, NULL},
    {spatial, "", "", "class", "mse", 78,
     "t.conf:1: train.loss: loss: mse with a class needs one output per class, and the output is 4x5x7: put flatten"},
    {spatial, "", "", "class", "cross_entropy", 78,
     "t.conf:1: train.loss: loss: softmax_cross_entropy with a class needs one output per class, and the output is "
     "4x5x7"},
    {spatial, "", "", "onehot", "cross_entropy", 78,
     "t.conf:1: train.loss: loss: softmax_cross_entropy needs one output per class, and the output is 4x5x7"},
    {spatial, "", "", "vector", "cross_entropy", 78, "or use mse"},
    {spatial, "labels t class\n", "", "class", "mse", 78, "mse with a class needs one output per class"},
    {spatial, "labels t 4x5x6\n", "", "vector", "mse", 78, "output 4x5x7 and target 4x5x6 differ"},
    {spatial, "labels t class\n", "l = mse(c, t)\n", "class", "mse", 65,
     ":4: l: mse with a class needs one output per class, and the output is 4x5x7"},
    {spatial, "labels t 4x5x7\n", "l = softmax_cross_entropy(c, t)\n", "vector", "cross_entropy", 65,
     ":4: l: softmax_cross_entropy needs one output per class"},
    {flat, "labels t 4\n", "l = mse(y, t)\n", "vector", "mse", 65, ":6: l: output 3 and target 4 differ"},
};

START_TEST(losses_that_fit)
{
    char s[300];
    struct err e = {0};
    snprintf(s, sizeof s, "input x 2x5x7\nc = conv(x) channels=4 kernel=3 padding=1\n%s%s%s", compared[_i].labels,
             compared[_i].tail, compared[_i].text_loss);
    const char *file = file_with(s);
    snprintf(s, sizeof s,
             "model { graph = \"%s\" } data { source = synthetic  labels = %s } train { steps = 1  loss = %s }", file,
             compared[_i].data, compared[_i].train);
    struct graph *g = built(s, &e);
    unlink(file);
    ck_assert_msg(e.code == compared[_i].code && !g == !!e.code, "%d: %s", e.code, e.text);
    if (e.code) ck_assert_msg(says(e.text, compared[_i].message), "%s", e.text);
    graph_free(g);
}
END_TEST

/* train.scores: operators beside the loss, before it; the graph may have them, and decides if it has a loss. */
#define PLAIN "input x 2\ny = linear(x) features=3\n"
#define WITH_LOSS "labels t class\nl = mse(y, t)\n"
static const struct { const char *text, *scores; int rows; const char *message; } scored[] = {
    {NULL, "mean_absolute_error", 4, NULL},
    {NULL, "{}", 3, NULL},
    {PLAIN, "mean_absolute_error", 4, NULL},
    {PLAIN "labels t class\nm = mean_absolute_error(y, t)\noutput y\n", "mean_absolute_error", 4, NULL},
    {PLAIN "labels t class\nm = mean_absolute_error(y, t)\nl = mse(y, t)\n", "mean_absolute_error", 4, NULL},
    {PLAIN WITH_LOSS, "mean_absolute_error", 0, "train.scores:|mean_absolute_error:"},
    {NULL, "mean_absolut_error", 0, " (did you mean mean_absolute_error?)"},
    {NULL, "mse", 0, "train.scores:|\"mse\"|mean_absolute_error"},
    {NULL, "{mean_absolute_error, relu}", 0, "train.scores:|\"relu"},
};

START_TEST(scores_by_configuration)
{
    char s[300];
    struct err e = {0};
    struct scores all;
    const char *file = scored[_i].text ? file_with(scored[_i].text) : NULL;
    snprintf(s, sizeof s, "model { %s%s%s } data { source = synthetic } train { steps = 1 scores = %s }",
             file ? "graph = \"" : "network = ", file ? file : "toy", file ? "\"" : "", scored[_i].scores);
    struct graph *g = built(s, &e);
    if (file) unlink(file);
    ck_assert_msg(!g == !!scored[_i].message, "%s", e.text);
    if (g) {
        graph_scores(g, &all);
        ck_assert_int_eq(all.n, scored[_i].rows);
        ck_assert_str_eq(all.of[0].name, "loss");
        if (all.n > 3) ck_assert_str_eq(all.of[3].name, "mae");
    } else {
        ck_assert_int_eq(e.code, 78);
        ck_assert_msg(says(e.text, scored[_i].message), "%s", e.text);
    }
    graph_free(g);
}
END_TEST

START_TEST(ranges_are_the_smallest)
{
    static const char text[] = "input x 4 I32\ninput f 4\na = embedding(x) count=9 features=2\n"
                               "b = embedding(x) count=7 features=2\nc = relu(f)\nd = flatten(a)\ne = flatten(b)\n"
                               "g = concat(d, e, c)\n";
    struct graph *g = parse(text);
    ck_assert_int_eq(graph_input_range(g, g->input[0].tensor), 7);
    ck_assert_int_eq(graph_input_range(g, g->input[1].tensor), 0);
    ck_assert(g->tensor[g->node[0].out].needs_grad && !g->tensor[g->input[0].tensor].needs_grad);
    graph_free(g);
}
END_TEST

/* text, and what the message must contain; all are 65. */
static const char *const wrong[][2] = {
    {"", "t.graph:1:"},
    {"graph x\ninput x 4\n", "the network is empty"},
    {"hello\n", "t.graph:1: \"hello\" does not begin a statement"},
    {"a = relu(x)\n", "t.graph:1:|\"x"},
    {"input x 4\na = gellu(x)\n", "t.graph:2: a:|\"gellu\""},
    {"input x 4x4x4\na = MaxPool2d(x)\n", "t.graph:2: a:|\"MaxPool2d\"|max_pool?)"},
    {"input x 4x4x4\na = conv(x) out_channels=3\n",
     "t.graph:2: a: conv has no attribute \"out_channels\" (did you mean channels?)"},
    {"input x 4\nfirst = relu(x)\nb = relu(frist)\n", "t.graph:3:|\"frist\""},
    {"input x 4\na = linear(x) features=4\nfreeze a.wieght\n",
     "t.graph:3:|\"a.wieght\"|a.weight?)"},
    {"input x 4\na = relu(x\n", "t.graph:2: expected: NAME"},
    {"input x 4\na = relu x\n", "t.graph:2: expected: NAME"},
    {"input x 4\na = relu(x) p=1\n", "relu has no attribute \"p\""},
    {"input x 4\na = relu(x, x)\n", "a: wrong number of inputs for relu"},
    {"input x 4\na = linear(x)\n", "a: features is missing"},
    {"input x 4 I64\na = embedding(x) features=3\n", "a: count is missing"},
    {"input x 4 I32\na = embedding(x) count=3\n", "a: features is missing"},
    {"input x 4\na = embedding(x) count=3 features=2\n", "a: input \"x\" is F32, and embedding takes I64 or I32 there"},
    {"input x 1x1x1x1x1x2 I64\na = embedding(x) count=3 features=2\n", "1x1x1x1x1x2 cannot have another dimension"},
    {"input x 70000 I64\na = embedding(x) count=3 features=70000\n", "2^31"},
    {"input x 4\na = leaky_relu(x) slope=1e28\n", "slope=1e28|-1000|1000"},
    {"input x 4\na = linear(x) features=0\n", "features=0|1|16777216"},
    {"input x 4\na = linear(x) features=3 features\n", "\"features\" is not NAME=VALUE"},
    {"input x 4\na = relu(x) layer=\n", "t.graph:2: a: layer="},
    {"input x 4\na = linear(x) layer=A junk\n", "\"junk\" is not NAME=VALUE"},
    {"input x 4\na = linear(x) features=99999999999999999999\n", "a: features="},
    {"input x 4\na = linear(x) bias=maybe\n", "expected yes or no"},
    {"input x 4\na = dropout(x) p=nan\n", "expected a number"},
    {"input x 2x8x8\na = conv(x) channels=4 padding=1 padding=2\n", "t.graph:2: a: padding is set twice"},
    {"input x 4\na = dropout(x) p=1\n", "not in 0 to 0.999"},
    {"input x 2x4\na = linear(x) features=3\n", "put flatten before it, or set points=yes"},
    {"input x 6\na = attention(x)\n", "a: the input has no positions: expected channels, then positions"},
    {"input x 8x4\na = attention(x)\n", "a: 8 channels are not queries, keys and values of one width"},
    {"input x 12x4\na = attention(x) heads=3\n", "a: 4 channels are not a multiple of 3 heads"},
    {"input x 8x4\na = slice(x) dim=1\n", "a: count is missing"},
    {"input x 8x4\na = slice(x) dim=2 count=1\n", "a:|8x4|2"},
    {"input x 8x4\na = slice(x) dim=1 first=2 count=3\n", "a: 3|2|1|8x4"},
    {"input x 8x4x4\na = prepend(x)\n", "8x4x4:|first=1"},
    {"input x 8x4\na = flatten(x) first=2\n", "a:|8x4|2"},
    {"input x 2x2x2\na = max_pool(x) kernel=3\n", "3|2"},
    {"input x 2x8x8\na = max_pool(x) kernel=2 padding=2\n", "padding is more than half"},
    {"input x 2x8x8\na = conv(x) channels=4 kernel=1x2x3\n", "3 values for 2 spatial"},
    {"input x 3x8x8\na = conv(x) channels=4 groups=2\n", "2 groups do not divide"},
    {"input x 4\nb = linear(x) features=3\na = add(x, b)\n", "summands differ: 4 and 3"},
    {"input x 2x4\nb = avg_pool(x) kernel=2\na = concat(x, b)\n", "differ beyond their channels"},
    {"input x 4\nx = relu(x)\n", "\"x"},
    {"input x 0\n", "\"0\" is not a shape"},
    {"input x 3x\n", "is not a shape"},
    {"input x 16777217\n", "is not a shape"},
    {"input x 1x1x1x1x1x1x1\n", "is not a shape"},
    {"input x 9999999x9999999x9999999\n", "more than 2^31 elements"},
    {"input x 100000\na = linear(x) features=100000\n", "a.weight has more than 2^31 elements"},
    {"input x 1024x1024x1024\na = conv(x) channels=1000000 kernel=1024 padding=1024\n", "more than 2^31"},
    {"labels t class\n", "there is no input"},
    {"input x 4\ninput y 4\na = relu(x)\n", "t.graph:2: nothing reads \"y\""},
    {"input x\n", "expected: input NAME SHAPE [TYPE]"},
    {"input x class I64\nlabels t class I32\n", "t.graph:2:|I64|I32"},
    {"input x 4 F64\n", "\"F64\" is not a type: expected F32, BF16, U8, I32 or I64"},
    {"input x 4 I32 more\n", "expected: input NAME SHAPE [TYPE]"},
    {"input x 4 I32\na = relu(x)\n", "t.graph:2: a: input \"x\" is I32, and relu takes F32 there"},
    {"input x 4\ninput y 4 U8\na = add(x, y)\n", "t.graph:3: a: input \"y\" is U8, and add takes F32 there"},
    {"input x class\na = relu(x)\n", "a: input \"x\" is I64, and relu takes F32"},
    {"input x 4\nlabels t 4 U8\nl = mse(x, t)\n", "l: input \"t\" is U8, and mse takes F32 or I64 there"},
    {"input x 4\nlabels t 4 I64\nl = mse(x, t)\n", "l: mse compares with one class, and the target is I64 of shape 4"},
    {"input a 1\ninput b 1\ninput c 1\ninput d 1\ninput e 1\ninput f 1\ninput g 1\ninput h 1\ninput i 1\n",
     "t.graph:9: i:"},
    {"input x 4\nb = relu(x)\na = relu(x)\n", "t.graph:2: nothing reads \"b\""},
    {"input x 4\nlabels t 4\na = add(x, t)\n", "only a loss or score reads labels"},
    {"input x 4\nlabels t 5\nl = mse(x, t)\n", "output 4 and target 5 differ"},
    {"input x 4\nlabels t class\nl = mse(x, t)\nk = mse(x, t)\n", "t.graph:3: nothing reads \"l\""},
    {"input x 4\nlabels t class\nl = mse(x, t)\noutput l\n", "must come last and read the output"},
    {"input x 4\na = relu(x)\nloss a\n", "the loss is not a loss operator"},
    {"input x 4\na = relu(x)\nb = relu(a)\nl = mse(b, a)\noutput b\n", "\"a"},
    {"input x 4\nlabels t class\na = relu(x)\nl = mse(x, t)\noutput a\n", "\"a"},
    {"input x 4\nlabels t class\na = linear(x) features=4\nb = linear(x) features=4\ns = mean_absolute_error(b, t)\n"
     "l = mse(a, t)\noutput a\n", "t.graph:4:|\"b\":|b.weight"},
    {"input x 4\na = linear(x) features=4\ntie a.weight a.weight\n",
     "t.graph:3:|a.weight|a.weight:"},
    {"input x 4\na = linear(x) features=4\nb = linear(a) features=4\ntie b.bias a.bias\ntie b.bias a.bias\n",
     "t.graph:5:|b.bias|a.bias:"},
    {"input x 4\na = linear(x) features=4\ntie a.weight a.bias\n",
     "t.graph:3: cannot tie a.weight to a.bias: shapes differ"},
    {"input x 4\na = batch_norm(x)\ntie a.running_mean a.running_var\n", "only weights can be tied"},
    {"input x 4\na = linear(x) features=4\ntie a.weight b.weight\n", "no parameter \"b.weight\""},
    {"input x 4\na = batch_norm(x)\nfreeze a.running_mean\n", "only weights are frozen"},
    {"input x 4\na = batch_norm(x)\ninit a.num_batches_tracked one\n", "is a counter"},
    {"input x 4\na = batch_norm(x)\ninit a.weight normal\n", "expected: init"},
    {"input x 4\na = batch_norm(x)\ninit a.weight normal inf\n", "expected: init"},
    {"input x 4\na = batch_norm(x)\ninit a.weight uniform 1z\n", "expected: init"},
    {"input x 4\ncontainer c C x\na = relu(x)\n", "container c has no nodes"},
    {"input x 4\na = relu(x)\noutput a\noutput x\n", "comes twice"},
    {"input x 4\na = linear(x) features=4\nname a.weight a.bias\n", "t.graph:3: there already is a parameter \"a.bias"},
    {"input x 4\na = linear(x) features=4\nname a.weight\n", "expected: name PARAMETER NAME"},
    {"input x 4\na = linear(x) features=4\nname b.weight w\n", "no parameter \"b.weight\""},
    {"input x 4\na = linear(x) features=4\ninit a.weight constant\n", "expected: init"},
    {"input x 4\na\"b = relu(x)\n", " name"},
    {"input x 4\na b = relu(x)\n", " name"},
    {"input x 4\ny = linear(x) features={2 + 2}\n", ":2:"},
    {"input x 4\nname {1} x\n", ":2:"},
    {"input x 4\na\x01 = relu(x)\n", "t.graph:2:"},
    {"input x 4\na\xc3\xa4 = relu(x)\n", "ASCII"},
    {"a b c d e f\n", "too many words"},
};

START_TEST(text_wrong)
{
    struct err e = {0};
    struct graph *g = graph_parse("t.graph", wrong[_i][0], strlen(wrong[_i][0]), &e);
    ck_assert_msg(g == NULL, "accepted: %s", wrong[_i][0]);
    ck_assert_msg(says(e.text, wrong[_i][1]), "\"%s\" does not say \"%s\"", e.text, wrong[_i][1]);
    ck_assert_msg(!strncmp(e.text, "t.graph:", 8), "%s", e.text);
    ck_assert_int_eq(e.code, E_DATA);
}
END_TEST

START_TEST(text_hostile_sizes)
{
    struct err e = {0};
    struct text t = {0};
    text_add(&t, "input x 4\n");
    for (int i = 0; i < 9000; i++) text_add(&t, "n%d = relu(x)\n", i);
    ck_assert_ptr_null(graph_parse("t.graph", t.s, t.n, &e));
    ck_assert(says(e.text, "too many nodes"));
    text_free(&t);
    e = (struct err){0};
    ck_assert_ptr_null(graph_parse("t.graph", "input x 4\0a", 11, &e));
    ck_assert(says(e.text, "NUL byte"));
    t = (struct text){0};
    text_add(&t, "input x 4\na = add(");
    for (int i = 0; i < 5000; i++) text_add(&t, "x, ");
    text_add(&t, "x)\n");
    e = (struct err){0};
    ck_assert_ptr_null(graph_parse("t.graph", t.s, t.n, &e));
    ck_assert(says(e.text, "too many inputs"));
    text_free(&t);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("graph", 120);
    tcase_add_test(t, text_round_trip);
    tcase_add_test(t, text_statements);
    tcase_add_test(t, text_pool_strides);
    tcase_add_test(t, text_ties_take_the_first_name);
    tcase_add_test(t, text_what_is_left_out);
    tcase_add_test(t, text_in_configuration);
    tcase_add_loop_test(t, text_decides, 0, N_OF(beside));
    tcase_add_loop_test(t, text_decides_dice, 0, N_OF(dices));
    tcase_add_loop_test(t, losses_that_fit, 0, N_OF(compared));
    tcase_add_loop_test(t, scores_by_configuration, 0, N_OF(scored));
    tcase_add_test(t, ranges_are_the_smallest);
    tcase_add_loop_test(t, text_wrong, 0, N_OF(wrong));
    tcase_add_test(t, text_hostile_sizes);
    return suite_run("graph", CK_FORK, t);
}
