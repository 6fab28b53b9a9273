/* Costs as a value: interpolation between measured sizes, profile.json written and read, and every kind of error in
 * such a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conf/conf.h"
#include "model/zoo.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "devices.h"
#include "sure.h"

static const char network[] =
    "graph two\ninput input 4\nlabels labels class\na = linear(input) features=4 layer=Linear\n"
    "b = relu(a) layer=ReLU\nloss = mse(b, labels)\nloss loss\noutput b\n";
static struct graph *g;
static struct selection *s;

static void open_all(void)
{
    struct err e = {0};
    g = graph_parse("two.graph", network, strlen(network), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    s = select_make(g, &rig_plain, 8, &e);
    ck_assert_msg(s != NULL, "%s", e.text);
}

static void close_all(void)
{
    select_free(s);
    graph_free(g);
}

/* Sizes 2, 4, 8; group i and phase p take (i + 1)(p + 1)(size squared). */
static struct cost *measured(void)
{
    struct cost *k = cost_new("test", s->n_groups, 3);
    k->load_ns = 7;
    k->latency_ns = 1500;
    k->bytes_per_ns = 2.5;
    k->optimizer_ns_per_byte = 0.25;
    k->busy_ns_per_byte = 0.5;
    k->sum_ns_per_byte = 0.125;
    for (int i = 0; i < 3; i++) {
        k->size[i] = 2 << i;
        for (int ph = 0; ph < PH_COUNT; ph++)
            for (int j = 0; j < s->n_groups; j++)
                *cost_cell(k, i, (enum phase)ph, j) = (j + 1) * (ph + 1) * k->size[i] * k->size[i];
    }
    return k;
}

START_TEST(interpolates)
{
    struct cost *k = measured();
    ck_assert(cost_ns(k, PH_FWD, 0, 2) == 4);
    ck_assert(cost_ns(k, PH_FWD, 0, 4) == 16);
    ck_assert(cost_ns(k, PH_FWD, 0, 3) == 10);            /* half-way from 4 to 16 */
    ck_assert(cost_ns(k, PH_FWD, 0, 6) == 40);            /* half-way from 16 to 64 */
    ck_assert(cost_ns(k, PH_FWD, 0, 1) == 2);             /* as fast as at 2 */
    ck_assert(cost_ns(k, PH_FWD, 0, 16) == 128);          /* as fast as at 8 */
    ck_assert(cost_ns(k, PH_BWD_WEIGHTS, 1, 4) == 96);
    cost_free(k);
}
END_TEST

START_TEST(estimates)
{
    struct cost *k = cost_estimate(s);
    ck_assert_str_eq(k->origin, "estimated");
    /* more samples take longer, but not in proportion: weights are read once */
    for (int i = 0; i < s->n_groups; i++) {
        ck_assert(cost_ns(k, PH_FWD, i, 1) > 0);
        ck_assert(cost_ns(k, PH_FWD, i, 8) > cost_ns(k, PH_FWD, i, 1) &&
                  cost_ns(k, PH_FWD, i, 8) <= 8 * cost_ns(k, PH_FWD, i, 1));
    }
    ck_assert(cost_ns(k, PH_FWD, 0, 8) < 7 * cost_ns(k, PH_FWD, 0, 1));
    ck_assert(cost_ns(k, PH_BWD_DATA, 0, 1) == 0);        /* nobody wants the gradient of the samples */
    ck_assert(cost_ns(k, PH_BWD_WEIGHTS, 0, 1) > 0);
    cost_free(k);
}
END_TEST

/* All passes of some groups of a network, a micro-batch of n samples. */
static double passes_ns(const struct cost *k, int from, int to, int n)
{
    double ns = 0;
    for (int i = from; i < to; i++) for (int ph = 0; ph < PH_COUNT; ph++) ns += cost_ns(k, (enum phase)ph, i, n);
    return ns;
}

static struct selection *network_select(const char *conf, bool wide, int n, struct graph **graph)
{
    struct err e = {0};
    struct device d = rig_blocked;
    struct conf *c = conf_parse("x.conf", conf, strlen(conf), &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    d.block = wide ? 16 : 8;
    d.speed = wide ? &onednn_avx512_speed : &onednn_avx2_speed;
    *graph = model_build(c, &e);
    ck_assert_msg(*graph != NULL, "%s", e.text);
    struct selection *q = select_make(*graph, &d, n, &e);
    ck_assert_msg(q != NULL, "%s", e.text);
    conf_free(c);
    return q;
}

static int group_named(const struct selection *q, const char *name)
{
    for (int i = 0; i < q->n_groups; i++) if (!strcmp(q->g->node[q->group[i].node[0]].name, name)) return i;
    ck_abort_msg("no group %s", name);
    return -1;
}

/* ResNet-50 of 32x32 pixels as profiles of it show it: half of the work lies before layer3.3, within a twentieth. */
START_TEST(estimates_halve_a_network)
{
    struct graph *net;
    struct selection *q = network_select(
        "model { network = \"resnet50\" classes = 10 input = {3, 32, 32} }\ndata { source = \"synthetic\" }\n",
        _i, 32, &net);
    struct cost *k = cost_estimate(q);
    double all = passes_ns(k, 0, q->n_groups, 32), half = passes_ns(k, 0, group_named(q, "layer3.3.conv1"), 32);
    ck_assert_msg(half > 0.45 * all && half < 0.55 * all, "%g of the work lies before layer3.3", half / all);
    /* a single point is slow but for what a 3x3 kernel does not meet there: weight gradients have their own kernel,
     * forward passes do not */
    int point = group_named(q, "layer4.1.conv3"), wide = group_named(q, "layer3.1.conv3");
    ck_assert(cost_ns(k, PH_FWD, point, 32) > 2 * cost_ns(k, PH_FWD, wide, 32));
    ck_assert(cost_ns(k, PH_FWD, group_named(q, "layer4.1.conv2"), 32) < cost_ns(k, PH_FWD, point, 32));
    cost_free(k);
    select_free(q);
    graph_free(net);
}
END_TEST

/* What kernels leave out of a product, its estimate leaves out: of a volume's convolution by Winograd's algorithm. */
START_TEST(estimates_know_shares)
{
    struct graph *net;
    struct selection *q = network_select(
        "model { network = \"vnet_eisen\" classes = 1 input = {1, 32, 32, 32} }\n"
        "data { source = \"synthetic\" labels = \"map\" }\ntrain { loss = \"dice\" }\n", _i, 2, &net);
    int i = group_named(q, "block_two.conv.0"), whole = group_named(q, "block_five.conv.0");
    struct cost *k = cost_estimate(q);
    double share = q->group[i].share, ns = passes_ns(k, i, i + 1, 2);
    cost_free(k);
    ck_assert_msg(share > 0.4 && share < 0.7 && !q->group[whole].share, "%g, %g", share, q->group[whole].share);
    q->group[i].share = 1;
    k = cost_estimate(q);
    double all = passes_ns(k, i, i + 1, 2);
    ck_assert_msg(ns > share * all && ns < 0.75 * all, "%g ns of %g", ns, all);   /* and its values, which are few */
    cost_free(k);
    select_free(q);
    graph_free(net);
}
END_TEST

START_TEST(estimates_know_instruction_sets)
{
    static const struct device_speed *const speed[] = {&onednn_avx512_speed, &onednn_avx2_speed, &host_speed};
    double before = 0;
    for (int i = 0; i < 3; i++) {
        s->dev.speed = speed[i];
        struct cost *k = cost_estimate(s);
        double ns = passes_ns(k, 0, s->n_groups, 8);
        ck_assert(ns > before);
        before = ns;
        cost_free(k);
    }
}
END_TEST

START_TEST(there_and_back)
{
    struct err e = {0};
    struct cost *k = measured();
    k->spread = 1.25;
    char *json = cost_json(k, s);
    struct cost *back = cost_parse("profile.json", json, strlen(json), s, &e);
    ck_assert_msg(back != NULL, "%s", e.text);
    ck_assert(back->spread == 1.25);
    ck_assert_str_eq(back->origin, "profile.json");
    ck_assert(back->load_ns == 7 && back->latency_ns == 1500 && back->bytes_per_ns == 2.5);
    ck_assert(back->optimizer_ns_per_byte == 0.25 && back->busy_ns_per_byte == 0.5 &&
              back->sum_ns_per_byte == 0.125);
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int j = 0; j < s->n_groups; j++)
            for (int n = 1; n < 12; n++)
                ck_assert(cost_ns(back, (enum phase)ph, j, n) == cost_ns(k, (enum phase)ph, j, n));
    cost_free(back);
    cost_free(k);
    free(json);
}
END_TEST

/* Costs for two and four threads beside those for one. */
static struct cost *measured_with_others(void)
{
    struct cost *k = measured();
    for (int i = 1; i <= 2; i++) {
        struct cost *o = measured();
        o->threads = 2 * i;
        o->load_ns = 7 + i;
        for (int j = 0; j < o->n_sizes * PH_COUNT * o->n_groups; j++) o->ns[j] *= 1 + i;
        o->other = k->other;
        k->other = o;
    }
    return k;
}

START_TEST(other_threads)
{
    struct err e = {0};
    struct cost *k = measured_with_others();
    char *json = cost_json(k, s);
    for (int i = 0; i <= 2; i++) {
        s->dev.threads = i ? 2 * i : 1;
        struct cost *back = cost_parse("profile.json", json, strlen(json), s, &e);
        ck_assert_msg(back != NULL, "%s", e.text);
        ck_assert(back->threads == s->dev.threads && back->load_ns == 7 + i && !back->other);
        ck_assert(cost_ns(back, PH_BWD_WEIGHTS, 1, 4) == 96 * (1 + i));
        cost_free(back);
    }
    struct cost *all = cost_parse_all("profile.json", json, strlen(json), s, &e), *two = cost_take(&all, 2);
    ck_assert(two && two->threads == 2 && !two->other && !cost_take(&all, 2) && !cost_take(&all, 3));
    ck_assert(all && all->other && !all->other->other);
    cost_free(two);
    cost_free(all);
    s->dev.threads = 3;
    ck_assert_ptr_null(cost_parse("profile.json", json, strlen(json), s, &e));
    ck_assert_msg(says(e.text, "measured with 2, 4, 1 threads a rank, but these are 3"), "%s", e.text);
    cost_free(k);
    free(json);
}
END_TEST

/* Another driver may change bits, but costs stay good. */
START_TEST(drivers)
{
    struct err e = {0};
    struct cost *k = measured();
    char *json = cost_json(k, s);
    strcpy(s->dev.beside, "driver 13.1, no NVRTC");
    struct cost *back = cost_parse("profile.json", json, strlen(json), s, &e);
    ck_assert_msg(back != NULL, "%s", e.text);
    cost_free(back);
    cost_free(k);
    free(json);
}
END_TEST

/* Where no device is at hand, a profile of any of its backend is taken, of another backend none. */
START_TEST(supposed)
{
    struct err e = {0};
    struct cost *k = measured(), *back;
    char *json = cost_json(k, s);
    s->dev.isa[0] = s->dev.library[0] = 0;
    ck_assert_ptr_null(cost_parse("profile.json", json, strlen(json), s, &e));
    e = (struct err){0};
    s->dev.supposed = true;
    back = cost_parse("profile.json", json, strlen(json), s, &e);
    ck_assert_msg(back != NULL, "%s", e.text);
    cost_free(back);
    strcpy(s->dev.backend, "ref");
    ck_assert_ptr_null(cost_parse("profile.json", json, strlen(json), s, &e));
    ck_assert_msg(says(e.text, "\"ref"), "%s", e.text);
    cost_free(k);
    free(json);
}
END_TEST

/* What the file says after one replacement. */
static const struct { const char *from, *to, *says; } wrong[] = {
    {"mpstaged profile 2", "mpstaged profile 1", "format"},
    {"\"two\"", "\"three\"", "network"},
    {"\"graph_hash\": \"", "\"graph_hash\": \"0", "graph_hash"},
    {"plain C", "oneDNN 2.6.3", "device"},
    {"\"precision\": \"fp32\"", "\"precision\": \"bf16\"", "\"bf16\"|\"fp32"},
    {"\"threads\": 1", "\"threads\": 2", "threads"},
    {"\"threads\": 1", "\"threads\": null", "threads"},
    {"\"threads\": 1", "\"threads\": 1.5", "threads"},
    {"\"threads\": 1", "\"threads\": 10000000000000000", "threads"},
    {"\"micro_batch_sizes\"", "\"sizes\"", "micro_batch_sizes"},
    {"\"load_ns_per_sample\": 7.0", "\"load_ns_per_sample\": -7.0", "load_ns_per_sample"},
    {"\"transfer_bytes_per_ns\": 2.5", "\"transfer_bytes_per_ns\": 0", "transfer_bytes_per_ns"},
    {"\"transfer_busy_ns_per_byte\": 0.5", "\"transfer_busy_ns_per_byte\": \"0.5\"", "transfer_busy_ns_per_byte"},
    {"\"sum_ns_per_byte\": 0.125", "\"sum_ns_per_byte\": -1", "sum_ns_per_byte"},
    {"\"name\": \"a\"", "\"name\": \"z\"", "group 0"},
    {"\"input_grad_ns\"", "\"input_grad\"", "input_grad_ns"},
    {"\"groups\": [", "\"groups\": [{},", "groups"},
    {"{", "", "profile.json:2"},
    {"\"network\"", "\"network\": \"two\", \"network\"", "profile.json:"},
    {"\"other_threads\": [", "\"other_threads\": 1, \"others\": [", "other_threads"},
    {"\"other_threads\": [", "\"other_threads\": [1, ", "threads"},
    {"\"threads\": 4", "\"threads\": 2", "twice measured with 2 threads a rank"},
    {"\"threads\": 4", "\"threads\": 1", "twice measured with 1 thread a rank"},
    {"\"load_ns_per_sample\": 9.0", "\"load_ns_per_sample\": -9.0", "load_ns_per_sample"},
};

START_TEST(refuses)
{
    struct cost *k = measured_with_others();
    char *json = cost_json(k, s);
    const char *at = strstr(json, wrong[_i].from);
    struct text t = {0};
    struct err e = {0};
    ck_assert_ptr_nonnull(at);
    text_add(&t, "%.*s%s%s", (int)(at - json), json, wrong[_i].to, at + strlen(wrong[_i].from));
    ck_assert_ptr_null(cost_parse("profile.json", t.s, t.n, s, &e));
    ck_assert_int_eq(e.code, E_DATA);
    ck_assert_msg(strncmp(e.text, "profile.json:", 13) == 0 && says(e.text, wrong[_i].says), "%s", e.text);
    text_free(&t);
    free(json);
    cost_free(k);
}
END_TEST

/* As many as there are. */
START_TEST(many_other_threads)
{
    enum { OTHERS = 200 };
    struct err e = {0};
    struct cost *k = measured();
    for (int i = 0; i < OTHERS; i++) {
        struct cost *o = measured();
        o->threads = 2 + i;
        o->other = k->other;
        k->other = o;
    }
    char *json = cost_json(k, s);
    s->dev.threads = 1 + OTHERS;
    struct cost *back = cost_parse("profile.json", json, strlen(json), s, &e);
    ck_assert_msg(back != NULL, "%s", e.text);
    ck_assert_int_eq(back->threads, 1 + OTHERS);
    k->other->spread = 2.5;                               /* measured on a busy machine */
    free(json);
    json = cost_json(k, s);
    int *threads;
    ck_assert_int_eq(cost_threads(json, strlen(json), 2, &threads), OTHERS);
    free(threads);
    ck_assert_int_eq(cost_threads(json, strlen(json), 2.5, &threads), 1 + OTHERS);
    free(threads);
    cost_free(back);
    cost_free(k);
    free(json);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("cost");
    tcase_add_checked_fixture(t, open_all, close_all);
    tcase_add_test(t, interpolates);
    tcase_add_test(t, estimates);
    tcase_add_loop_test(t, estimates_halve_a_network, 0, 2);
    tcase_add_loop_test(t, estimates_know_shares, 0, 2);
    tcase_add_test(t, estimates_know_instruction_sets);
    tcase_add_test(t, there_and_back);
    tcase_add_test(t, other_threads);
    tcase_add_test(t, many_other_threads);
    tcase_add_test(t, drivers);
    tcase_add_test(t, supposed);
    tcase_add_loop_test(t, refuses, 0, sizeof wrong / sizeof *wrong);
    return suite_run("cost", CK_FORK, t);
}
