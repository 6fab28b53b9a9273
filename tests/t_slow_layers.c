/* Which layers and stages are reported as late, and why: made-up plans and costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/slow_layers.h"
#include "plan/cost.h"
#include "sure.h"

enum { STAGES = 2, A_STAGE = 10, LAYERS = STAGES * A_STAGE, MICRO = 4, LONG = 16 };
static struct graph graph;
static struct node node[LAYERS];
static char name[LAYERS][32];
static struct group group[LAYERS];
static struct selection sel;
static int rank_of[STAGES] = {0, 1};
static struct placement placement = {.n_stages = STAGES, .map.rank_of = rank_of};
static struct stage_plan stage[STAGES];
static struct plan plan;
static struct cost *planned, *measured;
static double *x;
static struct text said;

/* Every kernel of every layer was planned with 1 ms and took 1.2 ms, on a core of its own. */
static void open_all(void)
{
    graph.node = node;
    graph.n_nodes = LAYERS;
    sel = (struct selection){.g = &graph, .group = group, .n_groups = LAYERS};
    plan = (struct plan){.sel = &sel, .pl = &placement, .stage = stage, .n_stages = STAGES, .n_mb = MICRO};
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name[i], sizeof name[i], i == LONG ? "layer4.0.downsample.%d" : "fc%d", i);
        node[i].name = name[i];
        group[i] = (struct group){.n_nodes = 1, .node = {i}};
    }
    for (int i = 0; i < STAGES; i++)
        stage[i] = (struct stage_plan){.rank = i, .first_group = i * A_STAGE, .n_groups = A_STAGE};
    planned = cost_new("p.json", LAYERS, 1);
    measured = cost_new("measured", LAYERS, 1);
    planned->size[0] = measured->size[0] = 8;
    x = mem_alloc((size_t)costs_count(measured) * sizeof *x);
    int n = PH_COUNT * LAYERS, kernels = costs_count(measured) - 3 * n;
    for (int i = 0; i < n; i++) {
        planned->ns[i] = 1e6;
        x[kernels + i] = 1.2e6;
        x[kernels + n + i] = 1;
    }
}

static void close_all(void)
{
    cost_free(planned);
    cost_free(measured);
    free(x);
    text_free(&said);
}

/* Number `what` of a layer's kernel: 0 time, 1 share of a core, 2 faults. */
static double *number(int what, enum phase ph, int layer)
{
    int n = PH_COUNT * LAYERS, kernels = costs_count(measured) - 3 * n;
    return &x[kernels + what * n + (int)ph * LAYERS + layer];
}

static void layer_takes(int layer, double times)
{
    for (int ph = 0; ph < PH_COUNT; ph++) *number(0, (enum phase)ph, layer) = times * 1e6;
}

static const char *verdict(bool estimated)
{
    costs_take(measured, x);
    struct slow_layers_request q = {
        .plan = &plan, .planned = planned, .measured = measured, .x = x, .estimated = estimated};
    slow_layers_kernels(&q, &said);
    return said.n ? said.s : "";
}

static int lines(const char *s)
{
    int n = 0;
    for (; *s; s++) n += *s == '\n';
    return n;
}

static void told(const char *s, const char *what)
{
    ck_assert_msg(strstr(s, what) != NULL, "no \"%s\" in: %s", what, s);
}
static void wide_at_most_80(const char *s)
{
    for (const char *end; (end = strchr(s, '\n')); s = end + 1) ck_assert_msg(end - s <= 80, "%.*s", (int)(end - s), s);
}

START_TEST(says_nothing_when_all_is_well)
{
    layer_takes(3, 2.9);
    ck_assert_str_eq(verdict(false), "");
}
END_TEST

START_TEST(names_a_slow_layer)
{
    layer_takes(13, 100);
    const char *s = verdict(false);
    told(s, "slow: fc13 takes 300 ms a micro-batch, 100 times its plan\n      likely because the profile");
    ck_assert_int_eq(lines(s), 2);
    wide_at_most_80(s);
}
END_TEST

START_TEST(fits_a_terminal_with_a_long_name)
{
    layer_takes(LONG, 1234);
    const char *s = verdict(true);
    told(s, "slow: layer4.0.downsample.16 takes 3.7 s a micro-batch, 1234 times its plan\n");
    wide_at_most_80(s);
}
END_TEST

START_TEST(names_what_the_backend_knows)
{
    *number(0, PH_BWD_WEIGHTS, 13) = 1100e6;
    group[13].fallback = "no kernel of its own";
    group[13].slow = true;
    told(verdict(false), "fc13 takes 1.1 s a micro-batch, 367 times its plan\n      no kernel of its own\n");
}
END_TEST

START_TEST(names_a_shared_core)
{
    layer_takes(2, 5);
    for (int ph = 0; ph < PH_COUNT; ph++) *number(1, (enum phase)ph, 2) = 0.3;
    const char *s = verdict(false);
    told(s, "shares its core: it had the core for 30 % of that time");
    wide_at_most_80(s);
}
END_TEST

static void stage_shares_its_core(int at, double share)
{
    for (int i = 0; i < A_STAGE; i++)
        for (int ph = 0; ph < PH_COUNT; ph++) *number(1, (enum phase)ph, at * A_STAGE + i) = share;
}

START_TEST(names_no_layer_where_all_share_a_core)
{
    for (int i = 0; i < A_STAGE; i++) layer_takes(i, 2.4);
    layer_takes(7, 5);
    stage_shares_its_core(0, 0.4);
    ck_assert_str_eq(verdict(false), "");
}
END_TEST

START_TEST(blames_no_core_that_does_not_explain_it)
{
    layer_takes(2, 50);
    for (int ph = 0; ph < PH_COUNT; ph++) *number(1, (enum phase)ph, 2) = 0.6;
    told(verdict(false), "likely because the profile");
}
END_TEST

START_TEST(names_short_memory)
{
    layer_takes(2, 50);
    *number(2, PH_FWD, 2) = 1000;
    const char *s = verdict(false);
    told(s, "memory is short: it waited for 1000 pages from a disk");
    wide_at_most_80(s);
}
END_TEST

START_TEST(names_three_and_counts_the_rest)
{
    for (int i = 1; i <= 5; i++) layer_takes(i > 3 ? 10 + i : i, 10 * i);
    const char *s = verdict(false);
    ck_assert_int_eq(lines(s), 7);
    ck_assert_ptr_eq(strstr(s, "slow: "), strstr(s, "slow: fc15 "));
    told(s, "slow: fc14 ");
    told(s, "slow: fc3 ");
    told(s, "slow: and 2 more, each more than 3 times its plan\n");
}
END_TEST

START_TEST(names_a_stage_whose_layers_are_all_late)
{
    for (int i = 0; i < A_STAGE; i++) layer_takes(A_STAGE + i, 4);
    stage_shares_its_core(1, 0.5);
    layer_takes(0, 10);
    const char *s = verdict(false);
    told(s, "slow: stage 1 takes 480 ms a step, 4 times its plan\n      likely because it shares its core: it had "
            "the core for 50 %");
    told(s, "slow: fc0 ");
    ck_assert_int_eq(lines(s), 4);
}
END_TEST

/* Estimates know no machine: where everything takes five times as long, one layer that takes six times is none of the
 * late, one of 50 is. */
START_TEST(compares_layers_with_each_other_where_costs_are_estimates)
{
    for (int i = 0; i < LAYERS; i++) layer_takes(i, 5);
    layer_takes(4, 6);
    layer_takes(15, 500);
    const char *s = verdict(true);
    ck_assert_ptr_null(strstr(s, "fc4 "));
    told(s, "slow: fc15 takes 1.5 s a micro-batch, 500 times its plan\n      likely because the plan's costs are "
            "estimates: --profile");
    wide_at_most_80(s);
}
END_TEST

START_TEST(leaves_out_what_is_not_worth_a_line)
{
    for (int ph = 0; ph < PH_COUNT; ph++) *cost_cell(planned, 0, (enum phase)ph, 5) = 10;
    layer_takes(5, 0.1);                                  /* 10,000 times its plan, 0.8 % of its stage */
    ck_assert_str_eq(verdict(false), "");
}
END_TEST

START_TEST(grades_stages_where_kernels_are_not_timed)
{
    slow_layers_stage(1, 0.010, 0.029, false, &said);
    ck_assert_uint_eq(said.n, 0);
    slow_layers_stage(1, 0.010, 0.042, false, &said);
    told(said.s, "slow: stage 1 takes 42 ms a step, 4.2 times its plan\n");
}
END_TEST

START_TEST(names_who_waits_for_samples)
{
    slow_layers_load(0, 0.004, 0.1, 1, &said);            /* 4 % of a step */
    slow_layers_load(0, 0.0005, 0.001, 1, &said);         /* too short to be worth a line */
    ck_assert_uint_eq(said.n, 0);
    slow_layers_load(2, 0.035, 0.1, 1, &said);
    told(said.s, "slow: rank 2 waits for samples for 35 % of a step\n      likely because data.workers = 1 is too few");
    wide_at_most_80(said.s);
    said.n = 0;
    slow_layers_load(0, 0.035, 0.1, 0, &said);
    told(said.s, "slow: rank 0 reads samples for 35 % of a step\n      because data.workers = 0: threads would");
    wide_at_most_80(said.s);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("verdict");
    tcase_add_checked_fixture(t, open_all, close_all);
    tcase_add_test(t, says_nothing_when_all_is_well);
    tcase_add_test(t, names_a_slow_layer);
    tcase_add_test(t, fits_a_terminal_with_a_long_name);
    tcase_add_test(t, names_what_the_backend_knows);
    tcase_add_test(t, names_a_shared_core);
    tcase_add_test(t, names_no_layer_where_all_share_a_core);
    tcase_add_test(t, blames_no_core_that_does_not_explain_it);
    tcase_add_test(t, names_short_memory);
    tcase_add_test(t, names_three_and_counts_the_rest);
    tcase_add_test(t, names_a_stage_whose_layers_are_all_late);
    tcase_add_test(t, compares_layers_with_each_other_where_costs_are_estimates);
    tcase_add_test(t, leaves_out_what_is_not_worth_a_line);
    tcase_add_test(t, grades_stages_where_kernels_are_not_timed);
    tcase_add_test(t, names_who_waits_for_samples);
    return suite_run("verdict", CK_FORK, t);
}
