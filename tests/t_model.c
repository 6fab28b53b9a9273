/* Networks: names and shapes of the zoo against torchvision's, invalid configurations, and the graph's bookkeeping
 * (readers, ties, which tensors need gradients). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/zoo.h"
#include "model_rig.h"

/* ---- zoo ------------------------------------------------------------------------------------- */

/* Figures and the XXH3-128 of the lines "NAME SHAPE" of state_dict(), made with torchvision 0.14's networks. */
static const struct { const char *name, *hash; int state, weights; int64_t params; int convs; } resnet[] = {
    {"resnet18", "b0fd30b00770105b2c128801cff9e8c5", 122, 62, 11689512, 20},
    {"resnet34", "c52654cbf8721f860a58a9b852918f4f", 218, 110, 21797672, 36},
    {"resnet50", "778bbb4de430425873f64fcf4ae4e18e", 320, 161, 25557032, 53},
    {"resnet101", "399a6f8a8a7677fb4a12b481737fce23", 626, 314, 44549160, 104},
    {"resnet152", "1a55290237d26e3c740bbb6006add40d", 932, 467, 60192808, 155},
};

START_TEST(resnet_is_torchvisions)
{
    struct graph *g = network(resnet[_i].name);
    struct text t = {0};
    char hash[33], s[96];
    int64_t count = 0;
    int weights = 0, convs = 0, norms = 0;
    for (int i = 0; i < g->n_params; i++) {
        text_add(&t, "%s %s\n", g->param[i].name, shape_text(&g->param[i].shape, s));
        if (g->param[i].kind == PARAM_WEIGHT) { weights++; count += shape_count(&g->param[i].shape); }
    }
    for (int i = 0; i < g->n_nodes; i++) {
        convs += !strcmp(g->node[i].op->name, "conv");
        norms += !strcmp(g->node[i].op->name, "batch_norm");
    }
    text_hash(t.s, t.n, hash);
    ck_assert_int_eq(g->n_params, resnet[_i].state);
    ck_assert_int_eq(weights, resnet[_i].weights);
    ck_assert_int_eq(count, resnet[_i].params);
    ck_assert_int_eq(convs, resnet[_i].convs);
    ck_assert_int_eq(norms, resnet[_i].convs);
    ck_assert_str_eq(hash, resnet[_i].hash);
    text_free(&t);
    graph_free(g);
}
END_TEST

/* The same of other families, lines sorted. kilo: thousands of multiply-adds of convolutions, linear layers and
 * attention. */
static const struct { const char *name, *hash; int state; int64_t params, kilo; } others[] = {
    {"vgg11", "bfeec560c4c4f29e833bfb5d68d0504a", 22, 132863336, 7609090},
    {"vgg11_bn", "0ff91d55e908e6e3033bf89e6608364b", 62, 132868840, 7609090},
    {"vgg16", "a77782b014832c9d9131ea504d94423c", 32, 138357544, 15470264},
    {"vgg16_bn", "d61603bf04ba48d84dfcacf87c3d0d63", 97, 138365992, 15470264},
    {"densenet121", "652fa60f23367a04f58bf88f498bbb9e", 727, 7978856, 2834161},
    {"mobilenet_v2", "7bef55872ec8790a095ded20c82981ee", 314, 3504872, 300774},
    {"mobilenet_v3_small", "4f94881468808a49b1870bd4178d93f8", 244, 2542856, 56510},
    {"mobilenet_v3_large", "86e913a79e5977b92de49fc1d4bf14e1", 312, 5483032, 216589},
    {"efficientnet_b0", "e79186c845aa5e1611429d3eb60a087e", 360, 5288548, 385814},
    {"convnext_tiny", "1f8052797d87b4c5289dc54a11f27b94", 182, 28589128, 4455531},
    {"vit_b_16", "7ec95d9198c073d167529b8f65836bff", 152, 86567656, 17563828},
    {"vit_b_32", "ca9b12c22f96067607ce3a24887a873b", 152, 88224232, 4409186},
    {"unet", "187c7836a1334152d60c8dfd1af33296", 118, 31037698, 48171581},
    {"unet_bilinear", "4936deb442c84891e0865b00efb7a7fc", 110, 17263042, 39984300},
    {"vnet", "e9b6bba642424ac6ff2292e678b21f26", 150, 45597898, 91441070},      /* MONAI's, as is the next one */
    {"unet3d", "6b84b67308e4ed00b0900a2d8b6c47c0", 148, 4808917, 5119082},
    {"vnet_eisen", "fc31bcff65bd358956a66473a8882c28", 126, 9504337, 12285116},
    {"vit_l_16", "f1f9f074e21d3d6268822cb4a6f22ca7", 296, 304326632, 61554712},
};

static int lines_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

START_TEST(networks_are_torchvisions)
{
    struct graph *g = network(others[_i].name);
    struct text t = {0};
    char hash[33], s[96], **line = mem_alloc((size_t)g->n_params * sizeof *line);
    int64_t count = 0;
    uint64_t flops = 0;
    for (int i = 0; i < g->n_params; i++) {
        struct text one = {0};
        text_add(&one, "%s %s\n", g->param[i].name, shape_text(&g->param[i].shape, s));
        line[i] = one.s;
        if (g->param[i].kind == PARAM_WEIGHT) count += shape_count(&g->param[i].shape);
    }
    qsort(line, (size_t)g->n_params, sizeof *line, lines_order);
    for (int i = 0; i < g->n_params; i++) {
        text_add(&t, "%s", line[i]);
        free(line[i]);
    }
    for (int i = 0; i < g->n_nodes; i++) flops += graph_flops(g, i);
    text_hash(t.s, t.n, hash);
    ck_assert_int_eq(g->n_params, others[_i].state);
    ck_assert_int_eq(count, others[_i].params);
    ck_assert_str_eq(hash, others[_i].hash);
    ck_assert_msg(flops / 2000 == (uint64_t)others[_i].kilo, "%llu thousand multiply-adds",
                  (unsigned long long)(flops / 2000));
    text_free(&t);
    free(line);
    graph_free(g);
}
END_TEST

/* Every network of the list can be built, small, too, and says what it is. */
START_TEST(all_are_built)
{
    for (int f = 0; zoo_list[f]; f++)
        for (const struct zoo_kind *k = zoo_list[f]; k->name; k++) {
            char conf[200];
            ck_assert(k->text && *k->text && k->classes > 0);
            graph_free(network(k->name));
            if (k->input_n != 3) continue;
            snprintf(conf, sizeof conf, "model { network = %s  input = {3, 64, 64}  classes = 7 }", k->name);
            struct graph *g = model(conf);
            ck_assert_int_eq(g->tensor[g->output].shape.d[0], 7);
            graph_free(g);
        }
}
END_TEST

START_TEST(resnet_shapes)
{
    struct graph *g = network("resnet50");
    static const char *const want[][2] = {{"conv1", "64x112x112"},
                                          {"maxpool", "64x56x56"},
                                          {"layer1.2.relu.3", "256x56x56"},
                                          {"layer2.0.conv1", "128x56x56"},
                                          {"layer2.0.conv2", "128x28x28"},
                                          {"layer4.2.relu.3", "2048x7x7"},
                                          {"avgpool", "2048x1x1"},
                                          {"flatten", "2048"},
                                          {"fc", "1000"},
                                          {"labels", "scalar"},
                                          {"loss", "3"}};
    char s[96];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        ck_assert_str_eq(shape_text(&g->tensor[tensor_find(g, want[i][0])].shape, s), want[i][1]);
    ck_assert_int_eq(g->tensor[g->loss].type, F64);
    ck_assert_int_eq(g->tensor[graph_input_first(g, ROLE_TARGET)].type, I64);
    ck_assert_str_eq(g->tensor[g->output].name, "fc");
    uint64_t flops = 0;
    for (int i = 0; i < g->n_nodes; i++) flops += graph_flops(g, i);
    ck_assert_uint_eq(flops / 2, 4089184256u);          /* the known 4.09 G multiply-adds at 224x224 */
    graph_free(g);
}
END_TEST

/* The counts that are known of ResNet-18 for CIFAR: 11,173,962 weights, 0.56 G multiply-adds. */
START_TEST(resnet_small_stem)
{
    struct graph *g = model("model { network = resnet18  small_stem = yes  input = {3, 32, 32}  classes = 10 }");
    uint64_t flops = 0, weights = 0;
    char s[96];
    for (int i = 0; i < g->n_nodes; i++) ck_assert_str_ne(g->node[i].op->name, "max_pool");
    ck_assert_str_eq(shape_text(&g->tensor[tensor_find(g, "layer1.1.relu.2")].shape, s), "64x32x32");
    ck_assert_str_eq(shape_text(&g->tensor[tensor_find(g, "layer4.1.relu.2")].shape, s), "512x4x4");
    for (int i = 0; i < g->n_nodes; i++) flops += graph_flops(g, i);
    for (int i = 0; i < g->n_params; i++)
        if (g->param[i].kind == PARAM_WEIGHT) weights += (uint64_t)shape_count(&g->param[i].shape);
    ck_assert_uint_eq(flops / 2, 555422720u);
    ck_assert_uint_eq(weights, 11173962u);
    graph_free(g);
}
END_TEST

START_TEST(resnet_initialisation)
{
    struct graph *g = model("model { network = resnet50  zero_init_residual = yes }"), *plain = network("resnet50");
    int zero = 0;
    const struct param *c = &g->param[param_find(g, "layer1.0.conv2.weight")],
                       *w = &g->param[param_find(g, "fc.weight")], *b = &g->param[param_find(g, "fc.bias")];
    for (int i = 0; i < g->n_params; i++) {
        size_t n = strlen(g->param[i].name);
        bool last = n > 10 && !strcmp(g->param[i].name + n - 10, "bn3.weight");
        ck_assert_int_eq(g->param[i].init == INIT_ZERO, last || plain->param[i].init == INIT_ZERO);
        zero += last;
    }
    ck_assert_int_eq(zero, 16);
    /* variance 2 / fan_out */
    ck_assert(c->init == INIT_NORMAL && c->scale * c->scale * 64 * 9 > 1.9999999 &&
              c->scale * c->scale * 64 * 9 < 2.0000001);
    ck_assert(w->init == INIT_UNIFORM && b->init == INIT_UNIFORM && w->scale * w->scale * 2048 > 0.9999999 &&
              w->scale * w->scale * 2048 < 1.0000001);
    ck_assert(w->scale == b->scale);
    ck_assert_int_eq(plain->param[param_find(plain, "bn1.running_var")].init, INIT_ONE);
    ck_assert_int_eq(plain->param[param_find(plain, "bn1.running_mean")].init, INIT_ZERO);
    graph_free(g);
    graph_free(plain);
}
END_TEST

/* Convolutions of networks that are not torchvision's begin as torch.nn's own: within 1 / sqrt(values that an output
 * reads). */
START_TEST(maps_begin_as_torch_nn)
{
    static const char *const name[] = {"unet", "unet_bilinear", "vnet", "vnet_eisen", "unet3d"};
    for (size_t k = 0; k < N_OF(name); k++) {
        struct graph *g = network(name[k]);
        int convs = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            const struct node *n = &g->node[i];
            if (strcmp(n->op->name, "conv")) continue;
            const struct param *p = &g->param[n->param[0]];
            double reads = 1;
            for (int d = 1; d < p->shape.n; d++) reads *= (double)p->shape.d[d];
            ck_assert_msg(p->init == INIT_UNIFORM && fabs(p->scale * p->scale * reads - 1) < 1e-12, "%s: %s", name[k],
                          p->name);
            convs++;
        }
        ck_assert_int_gt(convs, 15);
        graph_free(g);
    }
}
END_TEST

START_TEST(small_networks)
{
    char s[96];
    struct graph *g = model("model { network = toy } ");
    ck_assert_int_eq(g->n_nodes, 4);
    ck_assert_str_eq(shape_text(&g->param[param_find(g, "net1.weight")].shape, s), "10x10");
    ck_assert_str_eq(shape_text(&g->param[param_find(g, "net2.weight")].shape, s), "5x10");
    graph_free(g);
    g = model("model { network = mlp  hidden = {7, 9}  dropout = 0.25  classes = 3 }");
    static const char *const names[] = {"flatten", "fc1",      "relu1", "dropout1", "fc2",
                                        "relu2",   "dropout2", "fc3",   "loss"};
    ck_assert_int_eq(g->n_nodes, 9);
    for (int i = 0; i < 9; i++) ck_assert_str_eq(g->node[i].name, names[i]);
    ck_assert_str_eq(shape_text(&g->param[param_find(g, "fc2.weight")].shape, s), "9x7");
    ck_assert(g->node[3].attr[0].r == 0.25);
    graph_free(g);
}
END_TEST

START_TEST(configuration_wrong)
{
    static const char *const bad[][2] = {
        {"model { network = resnet51 }", "\"resnet51\"|toy|mlp"},
        {"model { network = toy  input = {3, 4} }", "t.conf:1: model.input: 2 numbers, but toy takes 1, as in 10"},
        {"model { network = resnet50  input = {128, 128} }",
         "t.conf:1: model.input: 2 numbers, but resnet50 takes 3, as in 3x224x224"},
        {"model { network = mlp  input = {1, 1, 1, 1, 1, 1, 1} }", "more than 6 dimensions"},
        {"model { network = resnet18  input = {3, 16777216, 16777216} }", "more than 2^31 elements"},
        {"model { network = vnet_eisen  input = {1, 64, 60, 64} }",
         "t.conf:1: model.network: 60|2|1x64x60x64|4|16"},
        {"model { network = vnet  input = {3, 32, 32, 32} }", "the input's channels are repeated to 16, which their"},
        {"model { network = unet3d  input = {1, 16, 16, 8} }", "8|3|1x16x16x8"},
        {"model { graph = \"/nonexistent/g\" }", "/nonexistent/g"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char s[300];
        struct err e = {0};
        snprintf(s, sizeof s, "%s data { source = synthetic } train { steps = 1 }", bad[i][0]);
        ck_assert_ptr_null(built(s, &e));
        ck_assert_msg(says(e.text, bad[i][1]), "\"%s\" does not say \"%s\"", e.text, bad[i][1]);
        ck_assert_int_eq(e.code, i == sizeof bad / sizeof *bad - 1 ? E_NOINPUT : E_CONF);
    }
}
END_TEST

/* ---- bookkeeping ----------------------------------------------------------------------------- */

START_TEST(gradients_only_below_parameters)
{
    struct graph *g = parse("input x 2x4x4\np = avg_pool(x) kernel=2\na = conv(p) channels=2\nfreeze a.weight\nfreeze "
                            "a.bias\nb = relu(a)\nc = conv(b) channels=2\n"
                            "d = add(c, b)\ne = relu(d)\n");
    static const struct {
        const char *name;
        bool grad;
        int readers;
    } want[] = {{"x", false, 1}, {"p", false, 1}, {"a", false, 1}, {"b", false, 2},
                {"c", true, 1},  {"d", true, 1},  {"e", true, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct tensor *t = &g->tensor[tensor_find(g, want[i].name)];
        ck_assert_msg(t->needs_grad == want[i].grad && t->n_readers == want[i].readers, "%s", want[i].name);
    }
    const struct tensor *b = &g->tensor[tensor_find(g, "b")];
    ck_assert(b->reader[0] == graph_node_find(g, "c") && b->reader[1] == graph_node_find(g, "d"));
    ck_assert_int_eq(graph_node_find(g, "nobody"), -1);
    graph_free(g);
}
END_TEST

START_TEST(operators_are_listed)
{
    int n = 0;
    for (; op_list[n]; n++) {
        ck_assert_ptr_eq(op_find(op_list[n]->name), op_list[n]);
        ck_assert(op_list[n]->text && *op_list[n]->text && op_list[n]->examples && op_list[n]->examples[0]);
    }
    ck_assert_int_ge(n, 13);
    ck_assert_ptr_null(op_find("nothing"));
}
END_TEST

int main(void)
{
    TCase *t = suite_case("model", 60);
    tcase_add_loop_test(t, resnet_is_torchvisions, 0, N_OF(resnet));
    tcase_add_loop_test(t, networks_are_torchvisions, 0, N_OF(others));
    tcase_add_test(t, all_are_built);
    tcase_add_test(t, resnet_shapes);
    tcase_add_test(t, resnet_small_stem);
    tcase_add_test(t, resnet_initialisation);
    tcase_add_test(t, maps_begin_as_torch_nn);
    tcase_add_test(t, small_networks);
    tcase_add_test(t, configuration_wrong);
    tcase_add_test(t, gradients_only_below_parameters);
    tcase_add_test(t, operators_are_listed);
    return suite_run("model", CK_FORK, t);
}
