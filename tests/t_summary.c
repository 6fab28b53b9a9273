/* The summary of a network, against torchsummary's own output. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "model_rig.h"

static struct text golden(const char *name)
{
    struct text t = {0};
    struct err e = {0};
    char file[1000];
    snprintf(file, sizeof file, "%s/tests/golden/%s", getenv("srcdir") ? getenv("srcdir") : ".", name);
    ck_assert_msg(!text_read_file(&t, file, 1 << 20, &e), "%s", e.text);
    return t;
}

static char *line_end(char *line)
{
    char *end = strchr(line, '\n');
    ck_assert_ptr_nonnull(end);
    *end = 0;
    return end + 1;
}

/* "[-1, 64, 32, 32]", as torchsummary writes it, of "64x32x32" */
static char *torch_shape(const char *s, char buf[64])
{
    size_t n = (size_t)snprintf(buf, 64, "[-1, ");
    for (; *s && n < 60; s++) n += (size_t)snprintf(buf + n, 64 - n, *s == 'x' ? ", " : "%c", *s);
    snprintf(buf + n, 64 - n, "]");
    return buf;
}

/* Its rows have torchsummary's names, shapes and parameters, in its order, behind the network's own names; what follows
 * the rows is the same text. */
/* It says MB for what is MiB. */
static bool same_line(const char *ours, const char *theirs)
{
    for (; *theirs != '\n'; ours++, theirs++) {
        if (strncmp(ours, "MiB)", 4) == 0 && strncmp(theirs, "MB)", 3) == 0) ours += 2, theirs++;
        if (*ours != *theirs) return false;
    }
    return *ours == '\n';
}

START_TEST(summary_is_torchsummarys)
{
    struct graph *g = model("model { network = resnet50  input = {3, 128, 128} }");
    struct text t = {0}, torch = golden("torchsummary-resnet50.txt");
    graph_summary(g, NULL, 80, &t);
    char *ours = strchr(strchr(strchr(t.s, '\n') + 1, '\n') + 1, '\n') + 1, *theirs = torch.s, own[64], type[64],
         shape[64], params[64];
    for (int i = 0; i < 3; i++) theirs = strchr(theirs, '\n') + 1;
    int rows = 0;
    for (; *theirs != '='; rows++) {
        char *next = line_end(ours), *next_theirs = line_end(theirs), want[200], s[64];
        ck_assert_int_eq(sscanf(ours, "%63s %63s %63s %63s", own, type, shape, params), 4);
        snprintf(want, sizeof want, "%20s  %25s %15s", type, torch_shape(shape, s), params);
        ck_assert_str_eq(want, theirs);
        int node = graph_node_find(g, own);
        ck_assert_msg(node >= 0 || !strncmp(type, "Bottleneck-", 11), "%s", own);
        ours = next;
        theirs = next_theirs;
    }
    ck_assert_int_eq(rows, 174);
    for (; *theirs; theirs = line_end(theirs), ours = strchr(ours, '\n') + 1)   /* rules differ in length */
        if (*theirs != '=' && *theirs != '-')
            ck_assert_msg(same_line(ours, theirs), "%s", ours);
        else ck_assert_int_eq(*ours, *theirs);
    ck_assert_int_eq(*ours, 0);
    text_free(&t);
    text_free(&torch);
    graph_free(g);
}
END_TEST

/* The whole text, which fits a terminal, as that of the larger networks does. */
START_TEST(summary_fits_a_terminal)
{
    static const char *const name[] = {"resnet50", "resnet18", "resnet152", "mlp"};
    for (int i = 0; i < 4; i++) {
        struct graph *g = network(name[i]);
        struct text t = {0}, want = golden("summary-resnet50.txt");
        int *stage = mem_alloc((size_t)g->n_nodes * sizeof *stage);
        for (int k = graph_node_find(g, "layer3.0.conv1"); k > 0 && k < g->n_nodes; k++) stage[k] = 1;
        struct summary_run run = {
            .stage_of = stage, .precision = "fp32", .optimizer = "sgd", .parameters = 4 * 25557032,
            .statistics = 4 * 53120 + 8 * 53, .gradients = 4 * 25557032, .buffers = 4 * 25557032};
        graph_summary(g, &run, 80, &t);
        if (!i) ck_assert_str_eq(t.s, want.s);
        for (const char *s = t.s; *s; s += strcspn(s, "\n") + 1) ck_assert_msg(strcspn(s, "\n") <= 80, "%s", s);
        text_free(&t);
        text_free(&want);
        free(stage);
        graph_free(g);
    }
}
END_TEST

START_TEST(summary_totals)
{
    struct graph *g = network("resnet50");
    struct text t = {0};
    int *stage = mem_alloc((size_t)g->n_nodes * sizeof *stage);
    graph_summary(g, NULL, 80, &t);
    ck_assert_ptr_nonnull(strstr(t.s, "Input size (MiB): 0.57\nForward/backward pass size (MiB): 286.56\nParams size "
                                      "(MiB): 97.49\nEstimated Total Size (MiB): 384.62\n"));
    text_free(&t);
    t = (struct text){0};
    for (int i = graph_node_find(g, "layer3.0.conv1"); i < g->n_nodes; i++) stage[i] = 1;
    struct summary_run run = {
        .stage_of = stage, .precision = "fp32", .optimizer = "sgd", .parameters = 4 * 25557032,
        .statistics = 4 * 53120 + 8 * 53, .gradients = 4 * 25557032, .buffers = 4 * 25557032};
    graph_summary(g, &run, 80, &t);
    ck_assert_ptr_nonnull(
        strstr(t.s, "layer2.3              Bottleneck-78          512x28x28         0         0     0\n"));
    ck_assert_ptr_nonnull(
        strstr(t.s, "layer3.0.conv1        Conv2d-79              256x28x28   131,072  102.76 M     1\n"));
    ck_assert_ptr_nonnull(strstr(t.s, "Forward multiply-adds per sample: 4,089,184,256\n"));
    ck_assert_ptr_nonnull(strstr(
        t.s, "In training at fp32 (MiB): parameters 97.49, running statistics 0.20,\n"
             "    gradients 97.49, sgd 97.49\n"));
    ck_assert_ptr_nonnull(strstr(t.s, "    0       71       1,444,928"));
    ck_assert_ptr_nonnull(strstr(t.s, "    1       87      24,112,104"));
    text_free(&t);
    char *s = graph_summary_json(g, &run);
    json_t *j = json_loads(s, 0, NULL);
    ck_assert_int_eq(json_array_size(json_object_get(j, "layers")), 174);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "params")), 25557032);
    const json_t *layer = json_array_get(json_object_get(j, "layers"), 78);
    ck_assert_int_eq(json_integer_value(json_object_get(layer, "stage")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(layer, "name")), "layer3.0.conv1");
    ck_assert_str_eq(json_string_value(json_object_get(layer, "torchsummary")), "Conv2d-79");
    ck_assert_int_eq(json_integer_value(json_object_get(j, "optimizer_bytes")), 4 * 25557032);
    ck_assert_int_eq(json_array_size(json_object_get(j, "stages")), 2);
    json_decref(j);
    free(s);
    free(stage);
    graph_free(g);
}
END_TEST

/* A graph text need not say layers: then every operator but the loss is one. */
START_TEST(summary_without_layers)
{
    struct graph *g =
        parse("input x 4\na = linear(x) features=3\nb = relu(a)\nlabels y 3\nl = mse(b, y)\noutput b\nloss l\n");
    struct text t = {0};
    int stage[3] = {0};
    struct summary_run run = {
        .stage_of = stage, .precision = "fp32", .optimizer = "sgd"};
    graph_summary(g, &run, 80, &t);
    ck_assert_ptr_nonnull(strstr(t.s, "a     linear-1      3      15        12     0\n"));
    ck_assert_ptr_nonnull(strstr(t.s, "b     relu-2        3       0         0     0\n"));
    ck_assert_ptr_null(strstr(t.s, "mse-3"));
    ck_assert_ptr_nonnull(strstr(t.s, "    0        2              15"));
    text_free(&t);
    graph_free(g);
}
END_TEST

START_TEST(summary_counts_ties_once)
{
    struct graph *g = parse("input x 4\na = linear(x) features=4 layer=Linear\nb = linear(a) features=4 "
                            "layer=Linear\ntie b.weight a.weight\nfreeze b.bias\n");
    struct text t = {0};
    graph_summary(g, NULL, 80, &t);
    ck_assert_ptr_nonnull(strstr(t.s, "Total params: 24\nTrainable params: 20\nNon-trainable params: 4\n"));
    text_free(&t);
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("summary", 60);
    tcase_add_test(t, summary_is_torchsummarys);
    tcase_add_test(t, summary_fits_a_terminal);
    tcase_add_test(t, summary_totals);
    tcase_add_test(t, summary_without_layers);
    tcase_add_test(t, summary_counts_ties_once);
    return suite_run("summary", CK_FORK, t);
}
