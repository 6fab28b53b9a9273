/* Blocks of graph text: a use equals the statements that it replaces, and errors have a place. */
#include <stdio.h>
#include <string.h>
#include "model_rig.h"

static void prints_as(const char *blocks, const char *flat)
{
    struct text a = {0}, b = {0};
    struct graph *g = parse(blocks), *h = parse(flat);
    graph_print(g, &a);
    graph_print(h, &b);
    ck_assert_str_eq(a.s, b.s);
    text_free(&a), text_free(&b);
    graph_free(g), graph_free(h);
}

static const char *const same[][2] = {
    {"block two(x) {\na = relu(x)\nb = sigmoid(a)\n}\ninput x 4\ny = two(x)\n",
     "input x 4\ny.a = relu(x)\ny.b = sigmoid(y.a)\n"},
    /* parameters, defaults, expressions, words; the output that is said; comments and empty lines */
    {"block conv_act(x) c k=3 act=relu slope=0.5 { # head\n\n  conv = conv(x) channels={2 * c + 1} kernel={k} "
     "padding={(k - 1) / 2} bias=no   # inner\n  act = {act}(conv)\n  other = leaky_relu(conv) slope={-slope / 4}\n"
     "  sum = add(act, other)\n  init conv.weight normal {1 / 8}\n  output sum\n  }\r\ninput x 2x5x5\n"
     "one = conv_act(x) c=3\ntwo = conv_act(one) k=1 c=4 act=silu\n",
     "input x 2x5x5\none.conv = conv(x) channels=7 kernel=3 padding=1 bias=no\none.act = relu(one.conv)\n"
     "one.other = leaky_relu(one.conv) slope=-0.125\none.sum = add(one.act, one.other)\n"
     "init one.conv.weight normal 0.125\n"
     "two.conv = conv(one.sum) channels=9 bias=no\ntwo.act = silu(two.conv)\n"
     "two.other = leaky_relu(two.conv) slope=-0.125\ntwo.sum = add(two.act, two.other)\n"
     "init two.conv.weight normal 0.125\n"},
    /* ranges: each reads the one before; i is the number; names have parts behind the number's stem */
    {"block drop(x, y) p {\nd = dropout(x) p={p * i / 4}\ns = add(d, y)\n}\ninput x 4\ninput y 4\n"
     "layer.1..3 = drop(x, y) p=0.5 layer=Drop\nend = relu(layer.3)\n",
     "input x 4\ninput y 4\nlayer.1.d = dropout(x) p=0.125\nlayer.1.s = add(layer.1.d, y)\n"
     "container layer.1 Drop layer.1.s\nlayer.2.d = dropout(layer.1.s) p=0.25\nlayer.2.s = add(layer.2.d, y)\n"
     "container layer.2 Drop layer.2.s\n"
     "layer.3.d = dropout(layer.2.s) p=0.375\nlayer.3.s = add(layer.3.d, y)\ncontainer layer.3 Drop layer.3.s\n"
     "end = relu(layer.3.s)\n"},
    /* blocks in blocks, lists as values, ties inside, dots in inner names */
    {"block pool(x) size=2 {\np = max_pool(x) kernel={size}\n}\nblock twice(x) size {\n0 = pool(x) size={size}\n"
     "tail.1 = relu(0)\na = linear(f) features=4\n}\n"
     "block head(x) {\nf = flatten(x)\na = linear(f) features=4\nb = linear(a) features=4\ntie b.bias a.bias\n}\n"
     "block all(x) {\n0 = pool(x) size=1x2\n1 = head(0)\n}\ninput x 2x6x6\ny = all(x)\n",
     "input x 2x6x6\ny.0.p = max_pool(x) kernel=1x2\ny.1.f = flatten(y.0.p)\ny.1.a = linear(y.1.f) features=4\n"
     "y.1.b = linear(y.1.a) features=4\ntie y.1.b.bias y.1.a.bias\n"},
};

START_TEST(uses_are_statements) { prints_as(same[_i][0], same[_i][1]); }
END_TEST

/* A block, what follows it, and what the message must contain; all are 65. */
static const char *const wrong[][2] = {
    {"block\n", "t.graph:1: \"block\" does not begin a statement"},
    {"block a\n", "t.graph:1: expected: block NAME(INPUT, ...)"},
    {"block a(x)\n", "t.graph:1: expected: block NAME(INPUT, ...)"},
    {"block a(x) { b\n", "expected: block NAME(INPUT, ...)"},
    {"block a() {\n", "t.graph:1: block a reads nothing"},
    {"block 1(x) {\n", "\"1\" is not a name of a block"},
    {"block relu(x) {\n", "block relu: there is an operator of this name"},
    {"block a(x) {\nr = relu(x)\n}\nblock a(x) {\n", "t.graph:4:|\"a"},
    {"block a(x, x) {\n", "\"x\""},
    {"block a(x) x {\n", "\"x\""},
    {"block a(x) i=3 {\n", "\"i\""},
    {"block a(x) layer {\n", "\"layer\""},
    {"block a(x) w= {\n", "block a: w= needs a value"},
    {"block a(x) 3d {\n", "\"3d\" is not a name of an input or a parameter"},
    {"block a(x) {\nr = relu(x)\n", "block a does not end: } is missing"},
    {"block a(x) {\n}\n", "t.graph:2: block a is empty"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny = a(x, x)\n", "t.graph:5: y: wrong number of inputs for block a"},
    {"block a(x) w {\nr = relu(x)\n}\ninput x 4\ny = a(x)\n", "t.graph:5: y:|w="},
    {"block a(x) w {\nr = relu(x)\n}\ninput x 4\ny = a(x) v=1\n", "y: block a has no parameter \"v\""},
    {"block a(x) w {\nr = relu(x)\n}\ninput x 4\ny = a(x) w=1 w=1\n", "y: w is set twice"},
    {"block a(x) w {\nr = relu(x)\n}\ninput x 4\ny = a(x) w\n", "\"w\" is not PARAMETER=VALUE"},
    {"block a(x) w {\nr = dropout(x) p={w}\n}\ninput x 4\ny = a(x) w=2\n", "t.graph:2: y.r: p=2"},
    {"block a(x) {\nr = dropout(x) p={v}\n}\ninput x 4\ny = a(x)\n", "t.graph:2: {v}:"},
    {"block a(x) {\nr = dropout(x) p={1 / 0}\n}\ninput x 4\ny = a(x)\n", "{1 / 0}:"},
    {"block a(x) {\nr = dropout(x) p={1 +}\n}\ninput x 4\ny = a(x)\n", "{1 +}:"},
    {"block a(x) {\nr = dropout(x) p={(1}\n}\ninput x 4\ny = a(x)\n", "{(1}:"},
    {"block a(x) {\nr = dropout(x) p={i / 2}\n}\ninput x 4\ny = a(x)\n", "{i / 2}:"},
    {"block a(x) w {\nr = dropout(x) p={w + 1}\n}\ninput x 4\ny = a(x) w=b\n", "{w + 1}:"},
    {"block a(x) {\nr = dropout(x) p={1\n}\ninput x 4\ny = a(x)\n", "t.graph:2: { without }"},
    {"block a(x) {\nr = relu(z)\n}\ninput x 4\nz = relu(x)\ny = a(x)\n", "t.graph:2:|\"z\""},
    {"block a(x) {\nr = a(x)\n}\ninput x 4\ny = a(x)\n", "t.graph:2: y.r:|\"a"},
    {"block a(x) {\noutput x\n}\ninput x 4\ny = a(x)\n", "t.graph:5: y: block a has no operator of its own"},
    {"block a(x) {\nr = relu(x)\noutput r\noutput r\n}\ninput x 4\ny = a(x)\n", "t.graph:4: \"output\""},
    {"block a(x) {\nr = relu(x)\nfreeze r\n}\ninput x 4\ny = a(x)\n", "t.graph:3: \"freeze\" does not begin a "
                                                                      "statement of a"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny = a(x) layer= \n", "t.graph:5: y: layer="},
    {"block a(x) {\ninput z 4\n}\ninput x 4\ny = a(x)\n", "t.graph:2: \"input\" does not begin a statement of a block"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny = a(x)\ny = relu(x)\n", "t.graph:6:|\"y"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\nx = a(x)\n", "t.graph:5:|\"x"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny = a(x)\ny.r = relu(y)\n", "\"y.r"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny.3..1 = a(x)\n", "y.3..1:"},
    {"block a(x) {\nr = relu(x)\n}\ninput x 4\ny.0..9999 = a(x)\n", "too many nodes"},
    {"block a(x) {\nr = relu(x)\ninit r.weight zero\n}\ninput x 4\ny = a(x)\n", "\"y.r.weight"},
    {"input x 4\ny = relu(x) {\n", "t.graph:2:"},
};

START_TEST(blocks_wrong)
{
    struct err e = {0};
    struct graph *g = graph_parse("t.graph", wrong[_i][0], strlen(wrong[_i][0]), &e);
    ck_assert_msg(g == NULL, "accepted: %s", wrong[_i][0]);
    ck_assert_msg(says(e.text, wrong[_i][1]), "\"%s\" does not say \"%s\"", e.text, wrong[_i][1]);
    ck_assert_int_eq(e.code, E_DATA);
}
END_TEST

static void refused(const char *s, const char *message)
{
    struct err e = {0};
    ck_assert(!graph_parse("t.graph", s, strlen(s), &e));
    ck_assert_msg(says(e.text, message), "%s", e.text);
}

/* What grows with the depth of blocks, or without nodes, ends early. */
START_TEST(limits)
{
    struct text t = {0};
    text_add(&t, "block b0(x) {\nr = relu(x)\n}\n");
    for (int i = 1; i < 20; i++) text_add(&t, "block b%d(x) {\nr = b%d(x)\n}\n", i, i - 1);
    text_add(&t, "input x 4\ny = b19(x)\n");
    refused(t.s, "more than 16 blocks within each other");
    text_free(&t);
    text_add(&t, "block a(x) {\nr = batch_norm(x)\n");
    for (int i = 0; i < 1000; i++) text_add(&t, "init r.weight zero\n");
    text_add(&t, "}\ninput x 4\ny.0..99 = a(x)\n");
    refused(t.s, "32768");
    text_free(&t);
    text_add(&t, "block a(x) {\nr = relu(x)\n}\ninput x 4\n");
    for (int i = 0; i < 300; i++) text_add(&t, "n");
    text_add(&t, " = a(x)\n");
    refused(t.s, "255");
    text_free(&t);
    text_add(&t, "block a(x) w {\nr = relu(x) {w}{w}{w}{w}\n}\ninput x 4\ny = a(x) w=");
    for (int i = 0; i < 300; i++) text_add(&t, "w");
    text_add(&t, "\n");
    refused(t.s, "1024");
    text_free(&t);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("blocks", 60);
    tcase_add_loop_test(t, uses_are_statements, 0, N_OF(same));
    tcase_add_loop_test(t, blocks_wrong, 0, N_OF(wrong));
    tcase_add_test(t, limits);
    return suite_run("blocks", CK_FORK, t);
}
