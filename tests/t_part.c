/* Partition policies: those of Hugging Face's accelerate against placements computed by hand from its documented rules. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/part.h"

#define NONE PART_NO_LIMIT
enum { MAX_LEAVES = 8, MAX_RANKS = 4 };
struct by_hand {
    const char *policy, *leaf[MAX_LEAVES];
    uint64_t bytes[MAX_LEAVES];
    int ranks;
    uint64_t limit[MAX_RANKS];
    struct conf_texts no_split;
    int want[MAX_LEAVES];
};
#define FLAT4 {"a", "b", "c", "d"}, {10, 10, 10, 10}
#define BLOCKS {"p.a", "p.b", "q.a", "q.b", "r.a", "r.b"}, {10, 10, 10, 10, 10, 10}

/* Weights only, as accelerate counts. Rank 0 keeps room for the largest layer not placed yet. */
static const struct by_hand by_hand[] = {
    {"sequential", FLAT4, 2, {30, 100}, {0}, {0, 0, 1, 1}},                               /* c would need 20 + 10, and room for d */
    {"sequential", {"a", "b"}, {10, 10}, 2, {20, 100}, {0}, {0, 0}},                      /* behind the last layer no room is needed */
    {"sequential", {"l.x", "l.y", "h"}, {10, 10, 5}, 2, {20, 100}, {0}, {0, 1, 1}},       /* l does not fit and is taken apart */
    {"sequential", {"l.x", "l.y", "h"}, {10, 10, 5}, 2, {20, 100}, {1, {"l"}}, {1, 1, 1}},
    {"sequential", {"a", "b", "c", "d", "e", "f"}, {4, 4, 4, 4, 4, 4}, 3, {12, 8, 100}, {0}, {0, 0, 1, 1, 2, 2}},
    {"sequential", {"a", "b", "c"}, {2, 9, 2}, 3, {10, 8, 20}, {0}, {1, 2, 2}},           /* c never goes back to rank 1 */
    {"sequential", FLAT4, 2, {NONE, NONE}, {0}, {0, 0, 0, 0}},
    {"balanced", FLAT4, 2, {NONE, NONE}, {0}, {0, 0, 1, 1}},                              /* 40 / 2 + 1.25 * 10 = 32 on rank 0 */
    {"balanced", {"a", "b", "c", "d", "e", "f"}, {10, 10, 10, 10, 10, 10}, 3, {NONE, NONE, NONE}, {0}, {0, 0, 1, 1, 1, 2}},
    {"balanced", BLOCKS, 2, {NONE, NONE}, {3, {"p", "q", "r"}}, {0, 0, 1, 1, 1, 1}},      /* 30 + 1.25 * 20 = 55, of which 20 stay free */
    {"balanced", BLOCKS, 2, {NONE, NONE}, {0}, {0, 0, 0, 1, 1, 1}},                       /* 30 + 12 = 42; q is taken apart */
    {"balanced", FLAT4, 2, {25, NONE}, {0}, {0, 1, 1, 1}},
    {"balanced", FLAT4, 3, {0, NONE, NONE}, {0}, {1, 1, 1, 2}},                           /* a rank without memory is none */
    {"balanced", {"a", "b", "c", "d", "e"}, {1, 30, 1, 0, 8}, 2, {NONE, NONE}, {0}, {0, 1, 1, 1, 1}},   /* the mean is of the four layers that have bytes */
    {"balanced_low_0", FLAT4, 3, {NONE, NONE, NONE}, {0}, {1, 1, 1, 2}},                  /* 40 / 2 + 12 = 32 on rank 1, nothing on rank 0 */
    {"balanced_low_0", {"a", "b", "c", "d", "e", "f"}, {10, 10, 10, 10, 10, 10}, 3, {100, 30, 20}, {0}, {1, 1, 1, 2, 2, 2}},   /* 10 are left for rank 0 */
    {"balanced_low_0", {"a", "b", "c"}, {5, 10, 10}, 2, {100, 10}, {0}, {0, 1, 1}},       /* 15 for rank 0: a, and room for b */
    {"balanced_low_0", FLAT4, 1, {NONE}, {0}, {0, 0, 0, 0}},
};

START_TEST(accelerate_by_hand)
{
    const struct by_hand *q = &by_hand[_i];
    struct part_leaf leaf[MAX_LEAVES];
    uint64_t limit[MAX_RANKS];
    int in_flight[MAX_RANKS] = {0}, rank[MAX_LEAVES], n = 0;
    for (; n < MAX_LEAVES && q->leaf[n]; n++) leaf[n] = (struct part_leaf){q->leaf[n], q->bytes[n], 0};
    memcpy(limit, q->limit, sizeof limit);
    struct part_model m = {.no_split = &q->no_split, .n = n, .leaf = leaf, .n_ranks = q->ranks, .in_flight = in_flight, .limit = limit, .reserve = true};
    if (strcmp(q->policy, "sequential")) part_balance(&m, !strcmp(q->policy, "balanced_low_0"));
    part_walk(&m, rank);
    for (int i = 0; i < n; i++) ck_assert_msg(rank[i] == q->want[i], "case %d, %s: layer %s on rank %d, not %d", _i, q->policy, q->leaf[i], rank[i], q->want[i]);
}
END_TEST

/* ---- from a configuration ------------------------------------------------------------------------------------------------------- */

static const struct device blocked = {.backend = "onednn", .isa = "avx512", .library = "oneDNN", .block = 16, .fuse_bn = true, .threads = 1};

struct made { struct conf *c; struct graph *g; struct selection *s; struct cost *k; struct plan_request r; struct part_request q; };

static struct made make(const char *pipeline, int stages)
{
    struct made m = {0};
    struct err e = {0};
    struct text t = {0};
    text_add(&t, "model { network = \"resnet18\" input = {3, 32, 32} }\ndata { source = \"synthetic\" }\ntrain { steps = 1 batch_size = 8 split_size = 2 }\n"
                 "pipeline { %s }\n", pipeline);
    m.c = conf_parse("p.conf", t.s, t.n, &e);
    text_free(&t);
    ck_assert_msg(m.c && !conf_finish(m.c, &e), "%s", e.text);
    m.g = model_build(m.c, &e);
    m.s = select_make(m.g, &blocked, 2, &e);
    m.k = cost_estimate(m.s);
    m.r = (struct plan_request){.mode = PLAN_TRAIN, .schedule = m.c->pipeline.schedule, .batch = 8, .split = 2, .backward = "auto", .batch_norm = "micro"};
    m.q = (struct part_request){.sel = m.s, .cost = m.k, .conf = m.c, .n_stages = stages, .n_state = 1};
    return m;
}

static void unmake(struct made *m)
{
    cost_free(m->k); select_free(m->s); graph_free(m->g); conf_free(m->c);
}

static int cut(struct made *m, int *first_group, struct err *e)
{
    m->q.plan = &m->r;
    for (int i = 0; part_list[i]; i++)
        if (!strcmp(part_list[i]->name, m->c->pipeline.partition)) return part_list[i]->split(&m->q, first_group, e);
    ck_abort_msg("no such policy");
}

static const char *const policies[] = {"sequential", "balanced", "balanced_low_0"};

/* Classes of blocks keep blocks whole, whatever the limits. */
START_TEST(blocks_stay_whole)
{
    char text[200];
    for (int bytes = 0; bytes < 2; bytes++) {
        int at[4];
        struct err e = {0};
        snprintf(text, sizeof text, "partition = %s stages = 3 no_split = \"BasicBlock\" count_bytes = %s max_memory = {20MB, 30MB, 9GB}", policies[_i], bytes ? "weights" : "training");
        struct made m = make(text, 3);
        ck_assert_msg(!cut(&m, at, &e), "%s", e.text);
        ck_assert(at[0] == 0 && at[3] == m.s->n_groups);
        for (int r = 1; r < 3; r++) {
            if (at[r] == 0 || at[r] == m.s->n_groups) continue;
            const char *before = m.g->node[m.s->group[at[r] - 1].node[0]].name, *behind = m.g->node[m.s->group[at[r]].node[0]].name;
            ck_assert_msg(strncmp(before, behind, strlen("layer1.0")), "%s: cut between %s and %s", policies[_i], before, behind);
        }
        unmake(&m);
    }
}
END_TEST

/* fc of ResNet-18: 512 x 1000 weights and 1000 of bias: weights, gradient and momentum in training. */
START_TEST(bytes_of_a_layer)
{
    struct err e = {0};
    for (int weights = 0; weights < 2; weights++) {
        struct part_model p;
        struct made m = make(weights ? "partition = balanced stages = 2 count_bytes = weights" : "partition = balanced stages = 2 max_memory = {1KiB, 1GB}", 2);
        m.q.plan = &m.r;
        ck_assert_msg(!part_model_make(&m.q, &p, &e), "%s", e.text);
        int fc = 0, kept = 0;
        while (strcmp(p.leaf[fc].name, "fc")) fc++;
        uint64_t one = 512 * 1000 * 4 + (weights ? 1000 * 4 : 4032);
        ck_assert_int_eq((int64_t)(p.leaf[fc].fixed - (weights ? 0 : m.s->group[fc].derived_bytes)), (int64_t)(weights ? one : 3 * one));
        for (int i = 0; i < p.n; i++) kept += p.leaf[i].kept > 0;
        ck_assert(weights ? kept == 0 : kept > p.n / 2);
        ck_assert(p.limit[0] == (weights ? NONE : 1024) && p.limit[1] == (weights ? NONE : 1000000000));
        if (!weights) ck_assert(p.in_flight[0] == 2 && p.in_flight[1] == 1);    /* 1f1b on two ranks */
        part_model_free(&p);
        unmake(&m);
    }
}
END_TEST

START_TEST(limits_of_other_ranks)
{
    int at[4];
    struct err e = {0};
    struct made m = make("partition = balanced stages = 3 max_memory = {1GB, 2GB}", 3);
    ck_assert(cut(&m, at, &e));
    ck_assert(e.code == E_CONF && strstr(e.text, "p.conf:4: pipeline.max_memory: 2 sizes for 3 ranks"));
    unmake(&m);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("part");
    tcase_add_loop_test(t, accelerate_by_hand, 0, sizeof by_hand / sizeof *by_hand);
    tcase_add_loop_test(t, blocks_stay_whole, 0, sizeof policies / sizeof *policies);
    tcase_add_test(t, bytes_of_a_layer);
    tcase_add_test(t, limits_of_other_ranks);
    Suite *s = suite_create("part");
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
