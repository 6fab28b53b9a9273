/* Partition policies: those of Hugging Face's accelerate against placements computed by hand from its documented rules;
 * auto against all cuts; manual and uniform. */
#include <stdio.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/sched.h"
#include "plan/sim.h"
#include "devices.h"
#include "sure.h"

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
    /* c would need 20 + 10, and room for d */
    {"sequential", FLAT4, 2, {30, 100}, {0}, {0, 0, 1, 1}},
    /* behind the last layer no room is needed */
    {"sequential", {"a", "b"}, {10, 10}, 2, {20, 100}, {0}, {0, 0}},
    /* l does not fit and is taken apart */
    {"sequential", {"l.x", "l.y", "h"}, {10, 10, 5}, 2, {20, 100}, {0}, {0, 1, 1}},
    {"sequential", {"l.x", "l.y", "h"}, {10, 10, 5}, 2, {20, 100}, {1, {"l"}}, {1, 1, 1}},
    {"sequential", {"a", "b", "c", "d", "e", "f"}, {4, 4, 4, 4, 4, 4}, 3, {12, 8, 100}, {0}, {0, 0, 1, 1, 2, 2}},
    /* c never goes back to rank 1 */
    {"sequential", {"a", "b", "c"}, {2, 9, 2}, 3, {10, 8, 20}, {0}, {1, 2, 2}},
    {"sequential", FLAT4, 2, {NONE, NONE}, {0}, {0, 0, 0, 0}},
    /* 40 / 2 + 1.25 * 10 = 32 on rank 0 */
    {"balanced", FLAT4, 2, {NONE, NONE}, {0}, {0, 0, 1, 1}},
    {"balanced",
     {"a", "b", "c", "d", "e", "f"},
     {10, 10, 10, 10, 10, 10},
     3,
     {NONE, NONE, NONE},
     {0},
     {0, 0, 1, 1, 1, 2}},
    /* 30 + 1.25 * 20 = 55, of which 20 stay free */
    {"balanced", BLOCKS, 2, {NONE, NONE}, {3, {"p", "q", "r"}}, {0, 0, 1, 1, 1, 1}},
    /* 30 + 12 = 42; q is taken apart */
    {"balanced", BLOCKS, 2, {NONE, NONE}, {0}, {0, 0, 0, 1, 1, 1}},
    {"balanced", FLAT4, 2, {25, NONE}, {0}, {0, 1, 1, 1}},
    /* a rank without memory is none */
    {"balanced", FLAT4, 3, {0, NONE, NONE}, {0}, {1, 1, 1, 2}},
    /* the mean is of the four layers that have bytes */
    {"balanced", {"a", "b", "c", "d", "e"}, {1, 30, 1, 0, 8}, 2, {NONE, NONE}, {0}, {0, 1, 1, 1, 1}},
    /* 40 / 2 + 12 = 32 on rank 1, nothing on rank 0 */
    {"balanced_low_0", FLAT4, 3, {NONE, NONE, NONE}, {0}, {1, 1, 1, 2}},
    /* 10 are left for rank 0 */
    {"balanced_low_0",
     {"a", "b", "c", "d", "e", "f"},
     {10, 10, 10, 10, 10, 10},
     3,
     {100, 30, 20},
     {0},
     {1, 1, 1, 2, 2, 2}},
    /* 15 for rank 0: a, and room for b */
    {"balanced_low_0", {"a", "b", "c"}, {5, 10, 10}, 2, {100, 10}, {0}, {0, 1, 1}},
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
    struct part_model m = {.no_split = &q->no_split, .n = n, .leaf = leaf, .n_stages = q->ranks, .in_flight = in_flight,
                           .limit = limit, .reserve = true};
    if (strcmp(q->policy, "sequential")) part_balance(&m, !strcmp(q->policy, "balanced_low_0"));
    part_walk(&m, rank);
    for (int i = 0; i < n; i++)
        ck_assert_msg(rank[i] == q->want[i], "case %d, %s: layer %s on rank %d, not %d", _i, q->policy, q->leaf[i],
                      rank[i], q->want[i]);
}
END_TEST

/* ---- from a configuration -------------------------------------------------------------------- */

struct made {
    struct conf *c;
    struct graph *g;
    struct selection *s;
    struct cost *k;
    struct plan_request r;
    struct part_request q;
};

static struct made make(const char *pipeline, int stages)
{
    struct made m = {0};
    struct err e = {0};
    struct text t = {0};
    text_add(&t,
             "model { network = \"resnet18\" input = {3, 32, 32} }\ndata { source = \"synthetic\" }\ntrain { steps = 1 "
             "batch_size = 8 split_size = 2 }\n"
             "pipeline { %s }\n",
             pipeline);
    m.c = conf_parse("p.conf", t.s, t.n, &e);
    text_free(&t);
    ck_assert_msg(m.c && !conf_finish(m.c, &e), "%s", e.text);
    m.g = model_build(m.c, &e);
    m.s = select_make(m.g, &rig_blocked, 2, &e);
    m.k = cost_estimate(m.s);
    m.r = (struct plan_request){.mode = PLAN_TRAIN, .schedule = m.c->pipeline.schedule, .batch = 8, .split = 2,
                                .backward = BACKWARD_AUTO, .batch_norm = STATS_MICRO};
    m.q = (struct part_request){.sel = m.s, .cost = m.k, .conf = m.c, .n_stages = stages, .mesh = {{stages, 1}},
                                .buffers = rig_buffers(1)};
    return m;
}

static void unmake(struct made *m)
{
    cost_free(m->k); select_free(m->s); graph_free(m->g); conf_free(m->c);
}

static int cut(struct made *m, int *first_group, struct err *e)
{
    m->q.plan = &m->r;
    return part_list[m->c->pipeline.partition - 1]->split(&m->q, first_group, e);
}

static const char *const policies[] = {"sequential", "balanced", "balanced_low_0"};

/* Classes of blocks keep blocks whole, whatever the limits. */
START_TEST(blocks_stay_whole)
{
    char text[200];
    for (int bytes = 0; bytes < 2; bytes++) {
        int at[4];
        struct err e = {0};
        snprintf(text, sizeof text,
                 "partition = %s stages = 3 no_split = \"BasicBlock\" count_bytes = %s max_memory = {20MB, 30MB, 9GB}",
                 policies[_i], bytes ? "weights" : "training");
        struct made m = make(text, 3);
        ck_assert_msg(!cut(&m, at, &e), "%s", e.text);
        ck_assert(at[0] == 0 && at[3] == m.s->n_groups);
        for (int r = 1; r < 3; r++) {
            if (at[r] == 0 || at[r] == m.s->n_groups) continue;
            const char *before = m.g->node[m.s->group[at[r] - 1].node[0]].name,
                       *behind = m.g->node[m.s->group[at[r]].node[0]].name;
            ck_assert_msg(strncmp(before, behind, strlen("layer1.0")), "%s: cut between %s and %s", policies[_i],
                          before, behind);
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
        struct made m = make(weights ? "partition = balanced stages = 2 count_bytes = weights"
                                     : "partition = balanced stages = 2 max_memory = {1KiB, 1GB}",
                             2);
        m.q.plan = &m.r;
        ck_assert_msg(!part_model_make(&m.q, &p, &e) && !part_model_count(&m.q, !weights, &p, &e), "%s", e.text);
        int fc = 0, kept = 0;
        while (strcmp(p.leaf[fc].name, "fc")) fc++;
        uint64_t one = 512 * 1000 * 4 + (weights ? 1000 * 4 : 4032);
        ck_assert_int_eq((int64_t)(p.leaf[fc].fixed - (weights ? 0 : m.s->group[fc].packed_bytes)),
                         (int64_t)(weights ? one : 3 * one));
        for (int i = 0; i < p.n; i++) kept += p.leaf[i].kept > 0;
        ck_assert(weights ? kept == 0 : kept > p.n / 2);
        ck_assert(p.limit[0] == (weights ? NONE : 1024) && p.limit[1] == (weights ? NONE : 1000000000));
        if (!weights) ck_assert(p.in_flight[0] == 2 && p.in_flight[1] == 1);    /* 1f1b on two ranks */
        part_model_free(&p);
        unmake(&m);
    }
}
END_TEST

/* What is kept to the end of a step lies on each of two replicas, half of it as its own. */
START_TEST(bytes_of_replicas)
{
    struct err e = {0};
    struct part_model p[2];
    struct made m[2];
    for (int k = 0; k < 2; k++) {
        m[k] = make("partition = balanced stages = 2", 2);
        m[k].r.groups = 2;
        m[k].q.mesh.size[AXIS_DP] = k + 1;
        m[k].q.plan = &m[k].r;
        ck_assert_msg(!part_model_make(&m[k].q, &p[k], &e), "%s", e.text);
        ck_assert_msg(!part_model_count(&m[k].q, true, &p[k], &e), "%s", e.text);
    }
    for (int i = 0; i < p[0].n; i++) ck_assert(p[0].leaf[i].fixed == p[1].leaf[i].fixed);
    for (int k = 0; k < 2; k++) { part_model_free(&p[k]); unmake(&m[k]); }
}
END_TEST

START_TEST(limits_of_other_ranks)
{
    int at[4];
    struct err e = {0};
    struct made m = make("partition = balanced stages = 3 max_memory = {1GB, 2GB}", 3);
    ck_assert(cut(&m, at, &e));
    ck_assert(e.code == E_CONF && says(e.text, "p.conf:4: pipeline.max_memory: 2 sizes for 3 ranks"));
    unmake(&m);
}
END_TEST

START_TEST(no_split_names_what_there_is)
{
    static const char *const policy[] = {"sequential", "balanced", "balanced_low_0", "auto"};
    static const char *const good[] = {"layer1.0", "layer2", "BasicBlock", "Conv2d", "layer1.0.relu"};
    char text[200];
    int at[4];
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        snprintf(text, sizeof text, "partition = %s stages = 2 no_split = {\"layer2\", \"BasicBlok\"}", policy[i]);
        struct made m = make(text, 2);
        ck_assert(cut(&m, at, &e));
        ck_assert_str_eq(
            e.text,
            "p.conf:4: pipeline.no_split: the network has no block or class \"BasicBlok\" (did you mean BasicBlock?)");
        ck_assert_int_eq(e.code, E_CONF);
        unmake(&m);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct err e = {0};
        snprintf(text, sizeof text, "partition = balanced stages = 2 no_split = \"%s\"", good[i]);
        struct made m = make(text, 2);
        ck_assert_msg(!cut(&m, at, &e), "%s", e.text);
        unmake(&m);
    }
}
END_TEST

/* ---- several stages a rank ------------------------------------------------------------------- */

/* Four stages on two ranks, in turn or as told: whatever the policy, the placement has them there, each with its share
 * of its rank's limit, and the plan is legal. _i: policy * 2 + as told */
static const char *const chunked[] = {"uniform", "sequential", "balanced", "balanced_low_0", "auto"};

START_TEST(stages_of_two_ranks)
{
    static const int in_turn[] = {0, 1, 0, 1}, told[] = {1, 0, 0, 0};
    const int *want = _i % 2 ? told : in_turn;
    char text[200];
    int at[5];
    struct err e = {0};
    struct part_model p;
    snprintf(text, sizeof text, "partition = %s stages = 4 schedule = gpipe max_memory = {120MB, 240MB}",
             chunked[_i / 2]);
    struct made m = make(text, 4);
    m.q.mesh.size[AXIS_PP] = 2;
    m.q.rank_of = _i % 2 ? told : NULL;
    ck_assert_msg(!cut(&m, at, &e) && !part_model_make(&m.q, &p, &e), "%s", e.text);
    struct placement *pl = part_place(&m.q, at, &e);
    struct plan *plan = pl ? plan_make(m.s, pl, &m.r, &e) : NULL;
    ck_assert_msg(plan && !plan_check(plan, &e), "%s: %s", chunked[_i / 2], e.text);
    ck_assert(at[0] == 0 && at[4] == m.s->n_groups && plan->n_stages == 4 && plan->n_ranks == 2);
    for (int i = 0; i < 4; i++) {
        ck_assert(plan->stage[i].rank == want[i] && pl->map.rank_of[i] == want[i]);
        ck_assert_uint_eq(p.limit[i], want[i] ? (uint64_t)240000000 / (_i % 2 ? 1 : 2)
                                              : (uint64_t)120000000 / (_i % 2 ? 3 : 2));
    }
    ck_assert(pl->map.n_stages_of[0] == (_i % 2 ? 3 : 2) && pl->map.n_stages_of[1] == (_i % 2 ? 1 : 2));
    plan_free(plan);
    placement_free(pl);
    part_model_free(&p);
    unmake(&m);
}
END_TEST

/* ---- auto: against every cut there is -------------------------------------------------------- */

/* Linear layers, ReLUs and sums of one width, each reading any of the four tensors before it: skips and branches. */
static struct graph *random_graph(uint32_t *x)
{
    struct text t = {0};
    struct err e = {0};
    int n = 6 + (int)(next_random(x) % 4);
    text_add(&t, "graph random\ninput input 8\nlabels labels class\nn0 = linear(input) features=8\n");
    for (int i = 1; i < n; i++) {
        int a = i - 1, b = i - 1 - (int)(next_random(x) % (i < 4 ? (unsigned)i : 4u)), kind = (int)(next_random(x) % 4);
        if (kind == 0) text_add(&t, "n%d = relu(n%d)\n", i, a);
        else if (kind == 1 && a != b) text_add(&t, "n%d = add(n%d, n%d)\n", i, a, b);
        else text_add(&t, "n%d = linear(n%d) features=8 bias=%s\n", i, kind == 2 ? b : a, i % 2 ? "yes" : "no");
    }
    text_add(&t, "loss = mse(n%d, labels)\nloss loss\noutput n%d\n", n - 1, n - 1);
    struct graph *g = graph_parse("random", t.s, t.n, &e);
    text_free(&t);
    return g;                                            /* NULL where a branch ends nowhere and that is an error */
}

/* The time of a cut, or -1 if it does not fit. Sets the largest rank's bytes. */
static double time_of(const struct part_request *q, const int *cut, const uint64_t *limit, uint64_t *peak)
{
    struct placement *pl = part_place(q, cut, NULL);
    struct plan *p = plan_make(q->sel, pl, q->plan, NULL);
    struct sim *sim = plan_simulate(p, q->cost, NULL);
    double ns = sim->wall_ns;
    ck_assert(plan_bound(p, q->cost) <= ns * (1 + 1e-9));
    *peak = 0;
    for (int r = 0; r < q->mesh.size[AXIS_PP]; r++) {
        if (sim->peak_bytes[r] > *peak) *peak = sim->peak_bytes[r];
        if (limit && sim->peak_bytes[r] > limit[r]) ns = -1;
    }
    sim_free(sim); plan_free(p); placement_free(pl);
    return ns;
}

/* Goes through all cuts: the shortest time of those that fit, -1 if none does, and the smallest possible peak. */
static double exhaustive(const struct part_request *q, int *cut, int i, const uint64_t *limit, uint64_t *least_peak)
{
    double best = -1;
    if (i == q->n_stages) {
        uint64_t peak;
        best = time_of(q, cut, limit, &peak);
        if (peak < *least_peak) *least_peak = peak;
        return best;
    }
    for (cut[i] = cut[i - 1] + 1; cut[i] <= cut[q->n_stages] - (q->n_stages - i); cut[i]++) {
        double ns = exhaustive(q, cut, i + 1, limit, least_peak);
        if (ns >= 0 && (best < 0 || ns < best)) best = ns;
    }
    return best;
}

/* Of those that take any placement, or as many stages a rank. */
static const char *schedule_for(uint32_t seed, int p, int ranks)
{
    static const char *const one[] = {"1f1b", "gpipe", "zb-h1", "naive"}, *const any[] = {"gpipe", "naive"};
    static const char *const even[] = {"gpipe", "interleaved", "zb-v", "naive", "auto"};
    return ranks == p ? one[seed % 4] : p % ranks ? any[seed % 2] : even[seed / 3 % 5];
}

/* p stages, on so many ranks, where the schedule wants them. */
static bool random_case(uint32_t seed, int p, int ranks)
{
    static const enum backward_mode backwards[] = {BACKWARD_AUTO, BACKWARD_JOINED, BACKWARD_SPLIT};
    extern const struct part_kind part_auto;
    uint32_t x = seed * 7919 + (uint32_t)p;
    struct graph *g = random_graph(&x);
    if (!g) return false;
    struct err e = {0};
    struct text t = {0};
    int cut[6] = {0}, found[6], rank_of[4];
    uint64_t limit[4], least = UINT64_MAX, peak;
    struct selection *s = select_make(g, &rig_plain, 3, &e);
    struct cost *k = cost_estimate(s);
    struct plan_request r = {.mode = PLAN_TRAIN,
                             .schedule = schedule_for(seed, p, ranks), .cost = k, .batch = 7,
                             .split = 2 + (int)(seed % 2), .backward = backwards[seed % 3], .batch_norm = STATS_MICRO,
                             .groups = 2};
    int n_dp = 1 + (int)(seed / 4 % 2);
    k->latency_ns = next_random(&x) % 40;
    k->bytes_per_ns = n_dp > 1 ? 100 : 1;          /* so that sums over replicas hide nothing */
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int i = 0; i < s->n_groups; i++) *cost_cell(k, 0, (enum phase)ph, i) = 10 + next_random(&x) % 90;
    if (seed % 5 == 0) {                                 /* devices of unequal speed */
        k->n_speed = ranks;
        k->speed = mem_alloc((size_t)ranks * sizeof *k->speed);
        for (int i = 0; i < ranks; i++) k->speed[i] = 0.5 + (next_random(&x) % 100) / 50.0;
    }
    struct part_found what;
    for (int i = 0; i < p; i++) rank_of[i] = sched_rank_of(sched_find(r.schedule), i, ranks);
    struct part_request q = {
        .sel = s, .cost = k, .plan = &r, .n_stages = p, .mesh = {{ranks, n_dp}}, .rank_of = rank_of,
        .buffers = rig_buffers((int)(seed % 3)), .found = &what};
    cut[p] = s->n_groups;
    double best = exhaustive(&q, cut, 1, NULL, &least);
    uint64_t tight = seed % 3 ? least + next_random(&x) % (least / 4 + 1) : 0;
    text_add(&t, "model { network = toy }\ndata { source = synthetic }\ntrain { steps = 1 }\npipeline { stages = %d ",
             p);
    if (tight) text_add(&t, "max_memory = %llu ", (unsigned long long)tight);
    text_add(&t, "}\n");
    struct conf *c = conf_parse("p.conf", t.s, t.n, &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    text_free(&t);
    for (int i = 0; i < ranks; i++) limit[i] = tight;
    cut[p] = s->n_groups;
    if (tight) best = exhaustive(&q, cut, 1, limit, &least);
    q.conf = c;
    ck_assert_msg(!part_auto.split(&q, found, &e), "%s", e.text);
    double ns = time_of(&q, found, tight ? limit : NULL, &peak);
    ck_assert_msg(what.proven && what.fits == (best >= 0), "seed %u, %d stages on %d ranks: %d plans, %s", seed, p,
                  ranks, what.plans, what.proven ? "proven" : "not proven");
    if (best >= 0)
        ck_assert_msg(ns >= 0 && ns <= best * (1 + 1e-9) && ns >= best * (1 - 1e-9),
                      "seed %u, %d stages on %d ranks, %s: %g, but there is %g", seed, p, ranks, r.schedule, ns, best);
    conf_free(c); cost_free(k); select_free(s); graph_free(g);
    return true;
}

/* Schedules, ways of the backward pass, limits and speeds change with the seed. */
START_TEST(auto_is_optimal)
{
    int done = 0;
    for (uint32_t seed = 0; seed < 90; seed++)
        for (int p = 2; p <= 4; p++)
            done += random_case(seed, p, p) + (seed % 3 == 0 && p > 2 && random_case(seed, p, 2));
    ck_assert_msg(done > 100, "only %d graphs", done);
}
END_TEST

/* ResNet-152 on eight ranks: no more plans than one second has room for, and no worse than the even cut. */
START_TEST(auto_is_quick)
{
    extern const struct part_kind part_auto, part_uniform;
    struct err e = {0};
    struct part_found what = {0};
    int at[9], even[9];
    uint64_t peak;
    struct conf *c = conf_parse("p.conf", "", 0, &e);
    ck_assert(!conf_set(c, "", "model.network=resnet152", &e) && !conf_set(c, "", "data.source=synthetic", &e) &&
              !conf_set(c, "", "train.steps=1", &e));
    ck_assert_msg(!conf_set(c, "", "model.input=3,64,64", &e) && !conf_finish(c, &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    struct selection *s = select_make(g, &rig_blocked, 20, &e);
    struct cost *k = cost_estimate(s);
    struct plan_request r = {
        .mode = PLAN_TRAIN, .schedule = "1f1b", .batch = 120, .split = 20, .backward = BACKWARD_AUTO,
        .batch_norm = STATS_MICRO};
    struct part_request q = {
        .sel = s, .cost = k, .conf = c, .plan = &r, .n_stages = 8, .mesh = {{8, 1}}, .found = &what};
    ck_assert_msg(!part_auto.split(&q, at, &e), "%s", e.text);
    ck_assert(!part_uniform.split(&q, even, &e));
    ck_assert_msg(what.plans > 0 && what.plans <= 160, "%d plans", what.plans);
    ck_assert(time_of(&q, at, NULL, &peak) <= time_of(&q, even, NULL, &peak));
    cost_free(k); select_free(s); graph_free(g); conf_free(c);
}
END_TEST

/* ---- manual and uniform ---------------------------------------------------------------------- */

static int manual(const char *stages, int n, int *at, struct err *e)
{
    char text[200];
    snprintf(text, sizeof text, "partition = manual stages = %d %s", n, stages);
    struct made m = make(text, n);
    int bad = cut(&m, at, e);
    unmake(&m);
    return bad;
}

static void manual_refused(const char *stages, int n, const char *why)
{
    int at[9];
    struct err e = {0};
    ck_assert(manual(stages, n, at, &e));
    ck_assert_msg(e.code == 78 && says(e.text, why) && !strncmp(e.text, "p.conf:", 7), "want \"%s\", got %d \"%s\"",
                  why, e.code, e.text);
}

START_TEST(manual_partitions)
{
    int at[9];
    struct err e = {0};
    ck_assert_msg(!manual("stage { first = conv1 last = layer2 } stage { first = layer3 last = fc }", 2, at, &e), "%s",
                  e.text);
    ck_assert(at[0] == 0 && at[1] > 0 && at[2] > at[1]);
    ck_assert_msg(!manual("stage { first = conv1 last = avgpool } stage { first = fc last = fc }", 2, at, &e), "%s",
                  e.text);
    /* flatten is no layer of its own and stays with avgpool; fc and the loss are the rest */
    ck_assert_int_eq(at[2] - at[1], 2);
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer4 last = fc }", 2, "layer3.0.conv1");
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer2 last = fc }", 2, "already belongs");
    manual_refused("stage { first = conv1 last = layer1.1.bn7 }\nstage { first = layer3 last = fc }", 2,
                   "no layer \"layer1.1.bn7\" (did you mean layer1.1.bn2?)");
    manual_refused("stage { first = conv1 last = nolayer }\nstage { first = layer3 last = fc }", 2,
                   "no layer \"nolayer\"");
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer3 last = layer4 }", 2, "avgpool");
    manual_refused("stage { first = conv1 last = bn1 }\nstage { first = relu last = fc }", 2,
                   "\"bn1\"|\"relu");
    manual_refused("stage { first = bn1 last = layer2 }\nstage { first = layer3 last = fc }", 2, "conv1");
}
END_TEST

START_TEST(uniform_partitions)
{
    int at[9];
    for (int n = 1; n <= 8; n++) {
        struct err e = {0};
        struct made m = make("partition = uniform", n);
        ck_assert(!cut(&m, at, &e));
        for (int i = 0; i < n; i++) ck_assert(at[i + 1] > at[i] && at[i + 1] - at[i] <= (at[n] + n - 1) / n);
        unmake(&m);
    }
    part_merge((int[]){0, 2, 5, 9, 11}, 4, 2, at);
    ck_assert(at[0] == 0 && at[1] == 5 && at[2] == 11);
}
END_TEST

/* Who says how many stages there are. */
START_TEST(stage_count)
{
    struct conf c = {.pipeline = {.partition = PART_uniform, .n_stages = 2}};
    ck_assert_int_eq(part_stage_count(&c, 0), 2);
    ck_assert_int_eq(part_stage_count(&c, 3), 3);
    c.pipeline.partition = PART_manual;
    ck_assert_int_eq(part_stage_count(&c, 3), 2);
    c.pipeline.stages = 4;
    c.pipeline.partition = PART_auto;
    ck_assert_int_eq(part_stage_count(&c, 3), 4);
    c.pipeline.stages = c.pipeline.n_stages = 0;
    ck_assert_int_eq(part_stage_count(&c, 0), 1);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("part", 120);
    tcase_add_loop_test(t, accelerate_by_hand, 0, sizeof by_hand / sizeof *by_hand);
    tcase_add_loop_test(t, blocks_stay_whole, 0, sizeof policies / sizeof *policies);
    tcase_add_test(t, bytes_of_a_layer);
    tcase_add_test(t, bytes_of_replicas);
    tcase_add_test(t, limits_of_other_ranks);
    tcase_add_test(t, no_split_names_what_there_is);
    tcase_add_test(t, manual_partitions);
    tcase_add_test(t, uniform_partitions);
    tcase_add_test(t, stage_count);
    tcase_add_loop_test(t, stages_of_two_ranks, 0, 2 * N_OF(chunked));
    tcase_add_test(t, auto_is_optimal);
    tcase_add_test(t, auto_is_quick);
    return suite_run("part", CK_FORK, t);
}
