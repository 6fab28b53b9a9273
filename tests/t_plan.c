/* The planner: schedules against closed formulas, the checker against mutations, partitions, golden plans. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/show.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "rig.h"
#include "sure.h"

/* One layer a stage, the loss with the last one; every pass of every stage costs the same and transfers are free. */
static struct made uniform_chain(const char *schedule, int p, int m, const char *backward, struct cost **k, double f,
                                 double b, double w)
{
    int cut[9];
    for (int i = 0; i <= p; i++) cut[i] = i < p ? i : p + 1;
    struct made x = made_make(rig_chain(p), &rig_plain, p, cut, rig_request(schedule, m, 1, backward));
    ck_assert_msg(x.p != NULL, "%s, %d stages, %d micro-batches: %s", schedule, p, m, x.e.text);
    *k = cost_new("test", p + 1, 1);
    (*k)->bytes_per_ns = INFINITY;
    (*k)->size[0] = 1;
    for (int i = 0; i < p; i++) {
        *cost_cell(*k, 0, PH_FWD, i) = f;
        *cost_cell(*k, 0, PH_BWD_DATA, i) = b;
        *cost_cell(*k, 0, PH_BWD_WEIGHTS, i) = w;
    }
    return x;
}

static int in_flight_wanted(const char *schedule, int p, int m, int r)
{
    if (!strcmp(schedule, "naive")) return 1;
    if (!strcmp(schedule, "gpipe")) return m;
    return m < p - r ? m : p - r;
}

/* Idle time of a step (Huang et al. 2019; Narayanan et al. 2021): (p-1)(F+B+W) for gpipe and 1f1b, m times that for
 * naive. With the gradient sent right after B the weight pass leaves the critical path of gpipe and 1f1b: (p-1)(F+B)
 * remains, plus nothing else as long as W fits where the rank waits. */
static void formulas(const char *schedule, int p, int m, bool split)
{
    const double f = 10, b = 12, w = 8;
    struct cost *k;
    struct made x = uniform_chain(schedule, p, m, split ? "split" : "joined", &k, f, b, w);
    struct sim *s = plan_simulate(x.p, k, NULL);
    ck_assert(s != NULL);
    double idle = s->wall_ns - m * (f + b + w), want = (p - 1) * (f + b + w);
    if (!strcmp(schedule, "naive")) want *= m;
    if (!split)
        ck_assert_msg(fabs(idle - want) < 1e-6, "%s p %d m %d: idle %g, formula %g", schedule, p, m, idle, want);
    else
        ck_assert_msg(idle <= want + 1e-6 && (strcmp(schedule, "gpipe") || fabs(idle - (p - 1) * (f + b)) < 1e-6),
                      "%s p %d m %d early sends: idle %g", schedule, p, m, idle);
    for (int r = 0; r < p; r++) ck_assert_int_eq(x.p->stage[r].in_flight, in_flight_wanted(schedule, p, m, r));
    sim_free(s);
    cost_free(k);
    made_free(&x);
}

static const char *const schedules[] = {"naive", "gpipe", "1f1b"};

/* ---- several stages a rank, fewer micro-batches in flight ------------------------------------ */

static const struct { const char *name; int stages, ranks, rank_of[6]; } maps[] = {
    {"round robin", 4, 2, {0, 1, 0, 1}}, {"V", 4, 2, {0, 1, 1, 0}}, {"neighbours", 4, 2, {0, 0, 1, 1}},
    {"three a rank", 6, 2, {0, 1, 0, 1, 0, 1}}, {"long V", 6, 3, {0, 1, 2, 2, 1, 0}},
    {"three neighbours", 6, 2, {0, 0, 0, 1, 1, 1}}, {"one rank", 3, 1, {0, 0, 0}}, {"uneven", 5, 2, {1, 0, 0, 1, 0}},
};
enum { MAPS = sizeof maps / sizeof *maps };

static struct made on_map(int map, const char *graph, struct plan_request r)
{
    return made_on(rig_graph(graph), &rig_plain, maps[map].stages, maps[map].ranks, maps[map].rank_of, r);
}

START_TEST(maps_are_values)
{
    struct arena *mem = arena_new();
    struct stage_map m;
    struct err e = {0};
    ck_assert(!stage_map_make(mem, 5, 2, NULL, &m, &e));
    ck_assert(m.n_stages_of[0] == 3 && m.n_stages_of[1] == 2 && m.stages_of[0][2] == 4 && m.stages_of[1][1] == 3);
    ck_assert(!stage_map_make(mem, 4, 2, (int[]){0, 1, 1, 0}, &m, &e));
    ck_assert(m.stages_of[0][0] == 0 && m.stages_of[0][1] == 3 && m.stages_of[1][0] == 1 && m.stages_of[1][1] == 2);
    ck_assert(stage_map_make(mem, 3, 3, (int[]){0, 1, 0}, &m, &e) && e.code == 78 && strstr(e.text, "rank 2 of 3"));
    e.code = 0;
    ck_assert(stage_map_make(mem, 2, 2, (int[]){0, 2}, &m, &e) && e.code == 78 && strstr(e.text, "stage 1 on rank 2"));
    arena_free(mem);
}
END_TEST

/* naive and gpipe take any map, 1f1b says what it wants. */
START_TEST(schedules_follow_the_map)
{
    for (int k = 0; k < 2; k++) {
        struct made m = on_map(_i, rig_skip, rig_request(schedules[k], 7, 2, "auto"));
        ck_assert_msg(m.p != NULL, "%s, %s: %s", schedules[k], maps[_i].name, m.e.text);
        struct cost *c = cost_estimate(m.s);
        struct sim *s = plan_simulate(m.p, c, &m.e);
        ck_assert_msg(s != NULL, "%s", m.e.text);
        ck_assert(plan_bound(m.p, c) <= s->wall_ns * (1 + 1e-12) && plan_bound(m.p, c) > 0);
        for (int i = 0; i < m.p->n_stages; i++) ck_assert_int_eq(m.p->stage[i].rank, maps[_i].rank_of[i]);
        sim_free(s);
        cost_free(c);
        made_free(&m);
    }
    struct made m = on_map(_i, rig_skip, rig_request("1f1b", 7, 2, "auto"));
    ck_assert(!m.p && m.e.code == 78 && strstr(m.e.text, "schedule \"1f1b\" wants one stage a rank, not "));
    made_free(&m);
}
END_TEST

/* A tensor lies in one place of a rank, whichever of its stages have it; no message stays on a rank; a weight is there
 * once, and an accumulator for each use on the owner's rank and for those of others on theirs. */
static void homes_are_one(const struct made *m, const char *what)
{
    const struct plan *p = m->p;
    size_t params[8] = {0};
    for (int i = 0; i < p->n_chan; i++) ck_assert_int_ne(p->chan[i].from_rank, p->chan[i].to_rank);
    for (int t = 0; t < m->g->n_tensors; t++)
        for (int r = 0; r < p->n_ranks; r++) {
            const struct place *x = NULL;
            for (int s = 0; s < p->n_stages; s++) {
                const struct place *y = &p->stage[s].act_place[t];
                if (p->stage[s].rank != r || y->space != SP_SLOT) continue;
                ck_assert_msg(!x || (x->cls == y->cls && x->off == y->off), "%s: rank %d has %s twice", what, r,
                              m->g->tensor[t].name);
                x = y;
            }
        }
    for (int k = 0; k < m->g->n_params; k++) {
        const struct param *w = &m->g->param[k];
        for (int r = 0; r < p->n_ranks; r++) {
            bool used = false;
            for (int u = 0; u < w->n_uses; u++) {
                int g = m->s->group_of[w->use_node[u]], s = 0;
                while (g >= m->pl->first_group[s + 1]) s++;
                used |= p->stage[s].rank == r;
            }
            params[r] += used ? select_param_bytes(m->s, k) : 0;
        }
    }
    for (int r = 0; r < p->n_ranks; r++) ck_assert_int_eq(m->pl->param_bytes[r], params[r]);
}

/* Loads of a rank and micro-batch: one, before its first reader. */
static void loads_are_one(const struct plan *p, const char *what)
{
    for (int r = 0; r < p->n_ranks; r++)
        for (int mb = 0; mb < p->n_mb; mb++) {
            int n = 0;
            for (int i = 0; i < p->row_n[r]; i++) n += p->row[r][i].op == ACT_L && p->row[r][i].mb == mb;
            bool reads = false;
            for (int s = 0; s < p->n_stages; s++) reads |= p->stage[s].rank == r && p->stage[s].load_stage >= 0;
            ck_assert_msg(n == reads, "%s: rank %d loads micro-batch %d %d times", what, r, mb, n);
        }
}

static const char *const homed[] = {rig_skip, rig_tied, rig_three_readers, rig_mlp_dropout};
enum { HOMED = sizeof homed / sizeof *homed };

START_TEST(nothing_moves_within_a_rank)
{
    static const char *const backwards[] = {"auto", "joined", "split"};
    for (int i = 0; i < HOMED * 6; i++) {
        struct plan_request r = rig_request(schedules[i % 2], 14, 2, backwards[i / 2 % 3]);
        bool again[64];
        for (int g = 0; g < 64; g++) again[g] = g % 3 != 1;
        r.bundle = 1 + i % 3;
        r.again = i % 4 == 3 ? again : NULL;
        struct made m = on_map(_i, homed[i / 6], r);
        ck_assert_msg(m.p != NULL, "%s, %s: %s", maps[_i].name, r.schedule, m.e.text);
        homes_are_one(&m, maps[_i].name);
        loads_are_one(m.p, maps[_i].name);
        made_free(&m);
    }
    struct made e = on_map(_i, rig_skip, (struct plan_request){.mode = PLAN_EVAL, .schedule = "forward", .batch = 9,
                                                               .split = 2});
    ck_assert_msg(e.p != NULL, "%s", e.e.text);
    homes_are_one(&e, maps[_i].name);
    made_free(&e);
}
END_TEST

/* One place more or less, and the plan is illegal. */
static void state_refused(struct made *m, const char *why)
{
    struct err e = {0};
    ck_assert(plan_check(m->p, &e) && e.code == 70);
    ck_assert_msg(strstr(e.text, why) != NULL, "%s", e.text);
}

/* State that lies elsewhere than alone in its place, and a gradient that has none. */
static int state_is_checked(struct made *m, int rank, struct state_row *r)
{
    size_t was = r->off[rank];
    if (was == STATE_NOWHERE) return 0;
    r->off[rank] += 64;
    state_refused(m, "lies where other state is");
    r->off[rank] = STATE_NOWHERE;
    if (r->region == IN_PARAM) state_refused(m, "is used, but nowhere");
    r->off[rank] = was;
    for (int k = m->pl->use_first[r->param]; r->trained && k < m->pl->use_first[r->param + 1]; k++) {
        size_t *at = &m->pl->use_off[rank][k];
        if (*at == STATE_NOWHERE || r->region != IN_PARAM) continue;
        *at += 64;
        state_refused(m, "a gradient lies where another one is");
        *at -= 64;
    }
    return 1;
}

START_TEST(homes_are_checked)
{
    struct made m = on_map(_i, rig_tied, rig_request("gpipe", 8, 2, "split"));
    struct err e = {0};
    int shared = 0;
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int s = 0; s < m.p->n_stages; s++)
        for (int t = 0; t < m.g->n_tensors; t++) {
            struct place *all[] = {&m.p->stage[s].act_place[t], &m.p->stage[s].grad_place[t]};
            for (int k = 0; k < 2; k++) {
                struct place *x = all[k], was = *x;
                if (x->space != SP_SLOT || m.p->cls[x->cls].stage == s) continue;
                shared++;
                x->off += 64;
                ck_assert_msg(plan_check(m.p, &e) && e.code == 70, "stage %d may have %s elsewhere", s,
                              m.g->tensor[t].name);
                *x = was;
            }
        }
    for (int r = 0; r < m.p->n_ranks; r++)
        for (int i = 0; i < m.pl->n_state; i++) shared += state_is_checked(&m, r, &m.pl->state[i]);
    for (int i = 0; i < m.p->n_chan; i++) {
        int was = m.p->chan[i].to_rank;
        m.p->chan[i].to_rank = m.p->chan[i].from_rank;
        e.code = 0;
        ck_assert(plan_check(m.p, &e) && strstr(e.text, "to itself"));
        m.p->chan[i].to_rank = was;
    }
    for (int i = 0; i < m.p->n_cls; i++) {              /* what another stage's action reads, it must name */
        for (int r = 0; r < m.p->n_ranks; r++)
            for (int k = 0; k < m.p->row_n[r]; k++) {
                struct act *a = &m.p->row[r][k];
                struct opnd *o = &m.p->opnd[a->opnd], last = o[a->n_opnd ? a->n_opnd - 1 : 0];
                for (int j = 0; a->op == ACT_F && j < a->n_opnd; j++) {
                    if (o[j].cls != i || m.p->cls[i].stage == a->stage || m.p->cls[i].writer == W_LOAD) continue;
                    struct opnd gone = o[j];
                    o[j] = last;
                    a->n_opnd--;
                    ck_assert(plan_check(m.p, NULL));
                    a->n_opnd++;
                    o[j] = gone;
                    shared++;
                }
            }
    }
    ck_assert(!plan_check(m.p, NULL));
    ck_assert_int_gt(shared, 0);
    made_free(&m);
}
END_TEST

/* Tables tell stages and ranks apart where they differ, and count a rank once. */
START_TEST(tables_speak_of_ranks)
{
    struct made m = on_map(1, rig_skip, rig_request("gpipe", 8, 2, "auto"));
    struct made same = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, rig_request("gpipe", 8, 2, "auto"));
    struct cost *k = cost_estimate(m.s);
    struct text t = {0};
    plan_table(m.p, k, 80, &t);
    ck_assert_msg(strstr(t.s, "stage rank  layers") && strstr(t.s, "\n    2    1  ") && strstr(t.s, "\n    3    0  ") &&
                  strstr(t.s, "\n rank     weights") && strstr(t.s, "of each rank:"), "%s", t.s);
    text_free(&t);
    t = (struct text){0};
    plan_table(same.p, k, 80, &t);
    ck_assert_msg(!strstr(t.s, "rank  ") && strstr(t.s, "\nstage     weights"), "%s", t.s);
    text_free(&t);
    char *json = plan_json(m.p, k);
    int n = 0;
    for (const char *at = json; (at = strstr(at, "\"peak_bytes\"")); at++) n++;
    ck_assert_int_eq(n, 2);
    free(json);
    cost_free(k);
    made_free(&m);
    made_free(&same);
}
END_TEST

/* No stage keeps more than it may, and nothing is kept below that without need. */
START_TEST(in_flight_is_limited)
{
    for (int k = 0; k < 3; k++)
        for (int limit = 1; limit <= 5; limit++) {
            struct plan_request r = rig_request(schedules[k], 8, 2, "auto");
            r.in_flight = limit;
            struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, r);
            ck_assert_msg(m.p != NULL, "%s", m.e.text);
            for (int i = 0; i < 3; i++) {
                int most = in_flight_wanted(schedules[k], 3, 4, i);
                ck_assert_int_eq(m.p->stage[i].in_flight, limit < most ? limit : most);
            }
            made_free(&m);
        }
    struct plan_request r = rig_request("gpipe", 8, 2, "auto");
    r.in_flight = -1;
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, r);
    ck_assert(!m.p && m.e.code == 78);
    made_free(&m);
    r = rig_request("rows", 8, 2, "auto");
    r.rows = "rank 0:\nrank 1:\n";
    r.in_flight = 2;
    m = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, r);
    ck_assert(!m.p && m.e.code == 78 && strstr(m.e.text, "rows say themselves"));
    made_free(&m);
}
END_TEST

START_TEST(schedules_meet_formulas)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 32; m++) { formulas(schedules[_i], p, m, false); formulas(schedules[_i], p, m, true); }
}
END_TEST

START_TEST(micro_batches_are_exact)
{
    struct graph *g = rig_chain(2);
    struct selection *s = select_make(g, &rig_plain, 40, NULL);
    int cut[] = {0, 1, 3};
    struct placement *pl = rig_place(s, 2, cut, 0, NULL);
    for (int n = 1; n <= 40; n++)
        for (int k = 1; k <= n; k++) {
            struct plan_request r = rig_request("1f1b", n, k, "auto");
            struct plan *p = plan_make(s, pl, &r, NULL);
            ck_assert(p != NULL);
            int sum = 0;
            for (int i = 0; i < p->n_mb; i++) {
                ck_assert_int_eq(p->mb_first[i], sum);
                ck_assert(p->mb_n[i] == k || (i == p->n_mb - 1 && p->mb_n[i] < k && p->mb_n[i] > 0));
                sum += p->mb_n[i];
            }
            ck_assert_int_eq(sum, n);
            plan_free(p);
        }
    placement_free(pl); select_free(s); graph_free(g);
}
END_TEST

/* ---- checker --------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *x) { *x = *x * 1664525u + 1013904223u; return *x >> 8; }

/* Independent of the checker: every F, B, W once, B after F, W after B and ascending, on each stage. */
static bool compute_legal(const struct plan *p)
{
    for (int s = 0; s < p->n_stages; s++)
        for (int mb = 0; mb < p->n_mb; mb++) {
            int f = -1, b = -1, w = -1, w_before = -1, n = 0, r = p->stage[s].rank;
            for (int i = 0; i < p->row_n[r]; i++) {
                const struct act *a = &p->row[r][i];
                if (a->stage != s) continue;
                if (mb && a->mb == mb - 1 && (a->op == ACT_W || a->op == ACT_D)) w_before = i;
                if (a->mb != mb) continue;
                if (a->op == ACT_F) { f = i; n++; }
                if (a->op == ACT_B || a->op == ACT_D) { b = i; n++; }
                if (a->op == ACT_W || a->op == ACT_D) { w = i; n++; }
            }
            if (n != 3 || f < 0 || b < f || w < b || (mb && (w_before < 0 || w_before > w))) return false;
        }
    return true;
}

START_TEST(checker_rejects_mutations)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, rig_request(schedules[_i], 7, 2, "split"));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    uint32_t seed = 1;
    int rejected = 0, n = 6000;
    for (int i = 0; i < n; i++) {
        int r = (int)(next_random(&seed) % 3), len = m.p->row_n[r], at = (int)(next_random(&seed) % (unsigned)len),
            to = (int)(next_random(&seed) % (unsigned)len);
        struct act *row = m.p->row[r], *saved = mem_alloc((size_t)len * sizeof *saved);
        memcpy(saved, row, (size_t)len * sizeof *row);
        switch (next_random(&seed) % 4) {
        case 0: memmove(row + at, row + at + 1, (size_t)(len - at - 1) * sizeof *row); m.p->row_n[r]--; break;
        case 1: { struct act a = row[at]; row[at] = row[to]; row[to] = a; break; }
        case 2: row[at].mb = (uint16_t)(next_random(&seed) % 5); break;
        default: row[at].flags ^= ACT_FIRST; break;
        }
        struct err e = {0};
        bool changed = m.p->row_n[r] != len || memcmp(saved, row, (size_t)len * sizeof *row);
        if (plan_check(m.p, &e)) { rejected++; ck_assert(e.code == 70 && e.text[0]); }
        else if (changed) ck_assert_msg(compute_legal(m.p), "an illegal plan passed the checker");
        m.p->row_n[r] = len;
        memcpy(row, saved, (size_t)len * sizeof *row);
        free(saved);
    }
    ck_assert_msg(rejected > n / 2, "only %d of %d mutations were rejected", rejected, n);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* A forward pass touches every class that it names: without any one of them the plan is illegal. */
START_TEST(checker_wants_all_operands)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, rig_request(schedules[_i], 7, 2, "split"));
    int tried = 0;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < m.p->row_n[r]; i++) {
            struct act *a = &m.p->row[r][i];
            struct opnd *o = &m.p->opnd[a->opnd], last = o[a->n_opnd ? a->n_opnd - 1 : 0];
            for (int k = 0; a->op == ACT_F && k < a->n_opnd; k++, tried++) {
                struct opnd gone = o[k];
                o[k] = last;
                a->n_opnd--;
                ck_assert_msg(plan_check(m.p, NULL), "%s: operand %d may be left out", schedules[_i], k);
                a->n_opnd++;
                o[k] = gone;
            }
        }
    ck_assert_int_gt(tried, 12);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

static void rows_refused(const char *rows, const char *why)
{
    struct plan_request r = rig_request("rows", 2, 1, "split");
    int cut[] = {0, 1, 3};
    r.rows = rows;
    struct made m = made_make(rig_chain(2), &rig_plain, 2, cut, r);
    ck_assert_msg(m.p == NULL && m.e.code == 65 && strstr(m.e.text, why), "want \"%s\", got %d \"%s\"", why, m.e.code,
                  m.e.text);
    made_free(&m);
}

START_TEST(rows_are_checked)
{
    struct plan_request r = rig_request("rows", 2, 1, "joined");
    int cut[] = {0, 1, 3};
    r.rows = "rank 0: 0F0 0F1 0B0 0W0 0B1 0W1\nrank 1: 1F0 1B0 1W0 1F1 1B1 1W1\n";
    struct made m = made_make(rig_chain(2), &rig_plain, 2, cut, r),
                same = made_make(rig_chain(2), &rig_plain, 2, cut, rig_request("1f1b", 2, 1, "joined"));
    struct text a = {0}, b = {0};
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    plan_print_rows(m.p, &a);
    plan_print_rows(same.p, &b);
    ck_assert_str_eq(a.s, b.s);
    text_free(&a); text_free(&b);
    made_free(&m); made_free(&same);
    rows_refused("rank 0: 0F0 0B0 0W0 0F1 0B1 0W1\nrank 1: 1F0 1F1 1B0 1W0 1B1 1W1\n", "deadlock");
    rows_refused("rank 0: 0F0 0F1 0B1 0W1 0B0 0W0\nrank 1: 1F0 1F1 1B1 1W1 1B0 1W0\n", "ascending");
    rows_refused("rank 0: 0F0 0B0 0W0\nrank 1: 1F0 1B0 1W0\n", "rows:1: 0F1 is missing; a batch has 2 micro-batches");
    rows_refused("rank 0: 0F0 0F1 0B0 0W0 0B1 0W1\n# none\nrank 1: 1F0 1B0 1W0 1F1 1B1\n",
                 "rows:3: 1W1 is missing; a batch has 2 micro-batches");
    rows_refused("rank 0:\nrank 1:\n", "rows: 0F0 is missing; a batch has 2 micro-batches");
    rows_refused("rank 0: 0F0 0B0 0W0\n\nrank 1: 1F0 1B0 1W0 60000F1\n", "rows:3: 60000F1: there is no such stage");
    rows_refused("rank 0: 0F0 0B0 0W0 0F60000\nrank 1:\n", "rows:1: 0F60000: there is no such micro-batch");
    rows_refused("rank 0: 0F0 1F1\nrank 1:\n", "rows:1: 1F1: the stage belongs to another rank");
    rows_refused("rank 0: 0F0 0B0 0F0\nrank 1:\n", "rows:1: 0F0: it is there twice");
    rows_refused("rank 0: 0F0 0F9x 0B0\nrank 1: 1F0\n", "rows:1: \"0F9x\"");
    rows_refused("rank 0: 0F0\n", "rank 1 has no row");
    rows_refused("rank 7: 0F0\n", "rows:1: rank 7");
    rows_refused("nonsense\n", "rows:1: want");
}
END_TEST

/* A legal schedule of three stages by chance: ranks act in any order as soon as what an action needs has been done; B
 * and W ascend, F does not. */
static void rows_random(struct text *t, int n_mb, uint32_t *seed)
{
    enum { STAGES = 3, MOST = 8 };
    bool did[STAGES][3][MOST] = {0};
    struct text row[STAGES] = {0};
    for (int left = STAGES * 3 * n_mb; left;) {
        int s = (int)(next_random(seed) % STAGES), op = (int)(next_random(seed) % 3);
        int mb = (int)(next_random(seed) % (unsigned)n_mb);
        bool ready = op == 0 ? s == 0 || did[s - 1][0][mb]
                   : op == 1 ? did[s][0][mb] && (s == STAGES - 1 || did[s + 1][1][mb]) : did[s][1][mb];
        if (did[s][op][mb] || !ready || (op && mb && !did[s][op][mb - 1])) continue;
        did[s][op][mb] = true;
        left--;
        text_add(&row[s], " %d%c%d", s, "FBW"[op], mb);
    }
    for (int s = 0; s < STAGES; s++) {
        text_add(t, "rank %d:%s\n", s, row[s].s);
        text_free(&row[s]);
    }
}

/* The plan's F, B and W as rows; its loads and transfers left out. */
static void rows_of(const struct plan *p, struct text *t)
{
    char s[32];
    for (int r = 0; r < p->n_ranks; r++) {
        text_add(t, "rank %d:", r);
        for (int i = 0; i < p->row_n[r]; i++) {
            const struct act *a = &p->row[r][i];
            if (a->op == ACT_F || a->op == ACT_B || a->op == ACT_W) text_add(t, " %s", act_text(p, a, s));
        }
        text_add(t, "\n");
    }
}

/* Rows without the actions of micro-batches from n on; these are numbered by one digit. */
static void rows_without(const char *rows, int n, struct text *t)
{
    for (const char *c = rows; *c;) {
        bool action = c[0] == ' ' && strchr("FBW", c[2]);
        if (!action || c[3] - '0' < n) text_add(t, "%.*s", action ? 4 : 1, c);
        c += action ? 4 : 1;
    }
}

/* Rows of a batch serve its short ones: what these have keeps its order, and stays legal. */
START_TEST(rows_serve_short_batches)
{
    static const char *const graphs[] = {rig_skip, rig_tied, rig_three_readers};
    uint32_t seed = 1;
    for (int i = 0; i < 60; i++) {
        int n_mb = 1 + (int)(next_random(&seed) % 8);
        struct text rows = {0};
        rows_random(&rows, n_mb, &seed);
        for (int n = n_mb; n; n--) {
            struct plan_request r = rig_request("rows", 2 * n - 1, 2, "split");
            r.rows = rows.s;
            r.rows_micro = n_mb;
            struct made m = made_make(rig_graph(graphs[i % 3]), &rig_plain, 3, NULL, r);
            ck_assert_msg(m.p != NULL, "%d of %d micro-batches: %s\n%s", n, n_mb, m.e.text, rows.s);
            struct cost *k = cost_estimate(m.s);
            struct sim *t = plan_simulate(m.p, k, NULL);
            struct text got = {0}, want = {0};
            rows_of(m.p, &got);
            rows_without(rows.s, n, &want);
            ck_assert_str_eq(got.s, want.s);
            ck_assert(t != NULL);
            sim_free(t);
            cost_free(k);
            text_free(&got); text_free(&want);
            made_free(&m);
        }
        text_free(&rows);
    }
}
END_TEST

#define ROW0 "rank 0: 0F0 0F1 0B0 0W0 0B1 0W1"
#define ROW1 "rank 1: 1F0 1B0 1W0 1F1 1B1 1W1\n"

/* Rows are checked for their own batch, whatever the short one has of it; and a batch with more micro-batches than they
 * name is refused. */
START_TEST(rows_of_short_batches_are_checked)
{
    static const struct { const char *rows; int batch, micro; const char *why; } wrong[] = {
        {ROW0 "\n" ROW1, 1, 3, "rows:1: 0F2 is missing; a batch has 3 micro-batches"},
        {ROW0 "\n" ROW1, 3, 0, "rows:1: 0F2 is missing; a batch has 3 micro-batches"},
        {ROW0 " 0F2\n" ROW1, 1, 2, "rows:1: 0F2: there is no such micro-batch; a batch has 2 micro-batches"},
        {ROW0 " 0F1\n" ROW1, 1, 2, "rows:1: 0F1: it is there twice"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct plan_request r = rig_request("rows", wrong[i].batch, 1, "split");
        r.rows = wrong[i].rows;
        r.rows_micro = wrong[i].micro;
        struct made m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r);
        ck_assert_msg(!m.p && m.e.code == 65 && strstr(m.e.text, wrong[i].why), "want \"%s\", got %d \"%s\"",
                      wrong[i].why, m.e.code, m.e.text);
        made_free(&m);
    }
}
END_TEST

/* ---- W of several micro-batches -------------------------------------------------------------- */

static struct made many_made(const char *schedule, int n_mb, int n, int bundle)
{
    struct plan_request r = rig_request(schedule, 2 * n_mb * bundle - 1, 2, "split");
    struct made m = {.g = rig_graph(rig_skip)};
    struct sched rows;
    int cut[4];
    r.bundle = bundle;
    m.s = select_make(m.g, &rig_plain, 2 * bundle, &m.e);
    for (int i = 0; i <= 3; i++) cut[i] = i * m.s->n_groups / 3;
    m.pl = rig_place(m.s, 3, cut, 1, &m.e);
    rig_rows_many(schedule, 3, n_mb, n, &rows);
    m.p = plan_make_from(m.s, m.pl, &r, &rows, &m.e);
    ck_assert_msg(m.p != NULL, "%s, W of %d: %s", schedule, n, m.e.text);
    sched_free(&rows);
    return m;
}

/* Ws and the micro-batches that they take, and the text of each. */
static void many_are_whole(const struct plan *p, int n, int bundle)
{
    for (int r = 0; r < 3; r++) {
        int next = 0;
        for (int i = 0; i < p->row_n[r]; i++) {
            const struct act *a = &p->row[r][i];
            char got[32], want[32];
            if (a->op != ACT_W) { ck_assert_int_eq(a->n_mb, 1); continue; }
            int left = p->n_mb - next, take = left < n ? left : n, first = next * bundle;
            int last = (next + take) * bundle < p->n_micro ? (next + take) * bundle - 1 : p->n_micro - 1;
            ck_assert(a->mb == next && a->n_mb == take && ((a->flags & ACT_FIRST) != 0) == (next == 0));
            if (last > first) snprintf(want, sizeof want, "%dW%d-%d", r, first, last);
            else snprintf(want, sizeof want, "%dW%d", r, first);
            ck_assert_str_eq(act_text(p, a, got), want);
            next += take;
        }
        ck_assert_int_eq(next, p->n_mb);
    }
}

START_TEST(w_takes_several)
{
    for (int n = 1; n <= 8; n++)
        for (int bundle = 1; bundle <= 2; bundle++) {
            struct made m = many_made(schedules[_i], 7, n, bundle),
                        same = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL,
                                         rig_request(schedules[_i], 13, 2, "split"));
            struct cost *k = cost_estimate(m.s);
            struct sim *s = plan_simulate(m.p, k, NULL), *t = plan_simulate(same.p, k, NULL);
            many_are_whole(m.p, n, bundle);
            ck_assert(!plan_check(m.p, NULL) && s && t);
            for (int r = 0; r < 3 && bundle == 1; r++) {   /* the work is the same */
                ck_assert(fabs(s->rank[r].part[ACC_WEIGHT_GRAD] / t->rank[r].part[ACC_WEIGHT_GRAD] - 1) < 1e-9);
                ck_assert_int_eq(m.p->stage[r].in_flight, same.p->stage[r].in_flight);
                ck_assert(n > 1 || m.p->slot_bytes[r] == same.p->slot_bytes[r]);
            }
            sim_free(s); sim_free(t);
            cost_free(k);
            made_free(&m); made_free(&same);
        }
}
END_TEST

static void many_refused(struct made *m, const char *what)
{
    struct err e = {0};
    ck_assert_msg(plan_check(m->p, &e), "%s passed the checker", what);
    ck_assert(e.code == 70 && e.text[0]);
}

/* One thing wrong with one W of several: each is found. */
START_TEST(w_of_several_is_checked)
{
    struct made m = many_made(schedules[_i], 7, 3, 1);
    int tried = 0;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < m.p->row_n[r]; i++) {
            struct act *a = &m.p->row[r][i], was = *a;
            a->n_mb++;
            many_refused(&m, was.op == ACT_W ? "a W of one too many" : "another action of several");
            a->n_mb = 0;
            many_refused(&m, "an action of none");
            *a = was;
            if (a->op != ACT_W || a->n_mb < 2) continue;
            a->n_mb--;
            many_refused(&m, "a W of one too few");
            a->mb++;
            many_refused(&m, "a W without its first micro-batch");
            a->mb = (uint16_t)(was.mb - 1);
            many_refused(&m, "a W of those before");
            *a = was;
            a->flags ^= ACT_FIRST;
            many_refused(&m, "a W that accumulates from another one");
            *a = was;
            for (int k = 0; k < a->n_opnd; k++, tried++) {
                struct opnd *o = &m.p->opnd[a->opnd + k], slot = *o;
                o->slot++;
                many_refused(&m, "a W that reads the slots behind its own");
                *o = slot;
            }
            int b = i;
            while (m.p->row[r][b].op != ACT_B) b--;
            *a = m.p->row[r][b];
            m.p->row[r][b] = was;
            many_refused(&m, "a W before its last B");
            m.p->row[r][b] = *a;
            *a = was;
        }
    ck_assert_int_gt(tried, 6);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

START_TEST(slots_do_not_overlap)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, rig_request("gpipe", 7, 2, "split"));
    ck_assert(m.p != NULL);
    for (int r = 0; r < 3; r++) {
        size_t sum = 0;
        for (int i = 0; i < m.p->n_cls; i++) {
            const struct slot_class *c = &m.p->cls[i];
            if (m.p->stage[c->stage].rank != r) continue;
            ck_assert(c->n_slots >= 1 && c->bytes > 0 && c->base == sum);
            sum += c->bytes * (size_t)c->n_slots;
        }
        ck_assert_uint_eq(sum, m.p->slot_bytes[r]);
    }
    made_free(&m);
}
END_TEST

/* 1f1b holds activations of min(m, p - r) micro-batches, gpipe of all (pipelining formulas), and recompute-free memory
 * of the first stage shows it. */
START_TEST(memory_follows_the_schedule)
{
    struct made g = made_make(rig_chain(8), &rig_plain, 4, NULL, rig_request("gpipe", 16, 1, "joined")),
                f = made_make(rig_chain(8), &rig_plain, 4, NULL, rig_request("1f1b", 16, 1, "joined"));
    ck_assert(g.p && f.p);
    for (int i = 0; i < f.p->n_cls; i++) {
        const struct slot_class *c = &f.p->cls[i];
        int want = 4 - c->stage;
        if (c->writer == W_F && c->last == L_B) ck_assert_int_eq(c->n_slots, want);
    }
    for (int i = 0; i < g.p->n_cls; i++)
        if (g.p->cls[i].writer == W_F && g.p->cls[i].last == L_B) ck_assert_int_eq(g.p->cls[i].n_slots, 16);
    ck_assert(f.p->slot_bytes[0] < g.p->slot_bytes[0]);
    made_free(&g); made_free(&f);
}
END_TEST

static bool overlap(const struct place *a, const struct place *b)
{
    return a->space == b->space && a->off < b->off + b->bytes && b->off < a->off + a->bytes;
}

/* Whether the gradient that call `at` reads is what was written last where it lies: the last call before that touches
 * the memory wrote this tensor. */
static bool gradient_lives(const struct selection *s, const struct prog *g, int at)
{
    const struct kop *k = &g->k[at];
    int t = s->group[k->group].out;
    for (int i = at - 1; i >= 0; i--) {
        const struct group *w = &s->group[g->k[i].group];
        for (int j = w->n_in - 1; g->k[i].phase == PH_BWD_DATA && j >= 0; j--)
            if (overlap(&g->k[i].gin[j], &k->gout)) return w->in[j] == t && g->k[i].gin[j].off == k->gout.off;
    }
    return false;
}

/* Gradients within the backward program: where batch norm is one kernel it writes over the gradient that it reads for
 * the last time, else nothing does. */
static int gradients_in_place(const struct device *d)
{
    struct text t = {0};
    text_add(&t, "%slabels labels class\nloss = softmax_cross_entropy(fc, labels)\nloss loss\n", rig_small_resnet);
    struct made m = made_make(rig_graph(t.s), d, 1, NULL, rig_request("gpipe", 8, 4, "joined"));
    text_free(&t);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    const struct prog *g = &m.p->stage[0].prog[PROG_D];
    int n = 0, read = 0;
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        const struct group *w = &m.s->group[k->group];
        if (k->gout.space != SP_TMP) continue;
        read++;
        ck_assert_msg(gradient_lives(m.s, g, i), "call %d reads a gradient that is gone", i);
        for (int j = 0; k->phase == PH_BWD_DATA && j < w->n_in; j++) {
            if (k->gin[j].space != SP_TMP || !overlap(&k->gin[j], &k->gout)) continue;
            ck_assert_int_eq(j, w->grad_over);
            ck_assert(k->gin[j].off == k->gout.off && k->gin[j].bytes == k->gout.bytes && !(k->gin_acc >> j & 1));
            n++;
        }
    }
    ck_assert_int_gt(read, 10);
    made_free(&m);
    return n;
}

START_TEST(batch_norm_gradients_in_place)
{
    /* bn1, a.bn1; a.bn2 and b.bn1 those of what is added; b.bnd */
    ck_assert_int_eq(gradients_in_place(&rig_blocked), 5);
    ck_assert_int_eq(gradients_in_place(&rig_plain), 0);
}
END_TEST

/* ---- identity -------------------------------------------------------------------------------- */

START_TEST(plans_are_pure)
{
    char a[33], b[33], c[33];
    struct made x = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 3, "auto")),
                y = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 3, "auto"));
    struct made z = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 2, "auto"));
    plan_hash(x.p, a);
    plan_hash(y.p, b);
    plan_hash(z.p, c);
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, c);
    made_free(&x); made_free(&y); made_free(&z);
}
END_TEST

/* They lie with whoever makes them until the step is over; the loss always is one, and the first. */
START_TEST(outputs_have_places)
{
    struct graph *g = rig_graph(rig_skip);
    int asked[] = {g->node[graph_node_find(g, "c")].out, g->loss, g->output};
    struct plan_request r = rig_request("1f1b", 8, 1, "split");
    struct text t = {0};
    r.output = asked;
    r.n_outputs = 3;
    struct made m = made_make(g, &rig_plain, 3, NULL, r);
    ck_assert_msg(m.p && m.p->n_outputs == 3, "%s", m.e.text);
    ck_assert(m.p->output[0].tensor == g->loss && m.p->output[1].tensor == asked[0] && m.p->output[2].stage == 2);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(m.p->cls[m.p->output[i].at.cls].n_slots, 8);
    plan_print(m.p, &t);
    ck_assert(strstr(t.s, "output c rank 0 at slot/") && strstr(t.s, "output fc rank 2 at slot/"));
    text_free(&t);
    struct output *o = &m.p->output[1], was = *o;
    struct err e = {0};
    int other = 0;                                        /* slots that serve one micro-batch after another */
    while (m.p->cls[other].stage != was.stage || m.p->cls[other].n_slots == 8) other++;
    o->at.cls = (int16_t)other;
    ck_assert(plan_check(m.p, &e) && e.code == 70 && strstr(e.text, "output \"c\": micro-batch 0 is gone"));
    *o = was;
    o->rank = 2;
    e = (struct err){0};
    ck_assert(plan_check(m.p, &e) && strstr(e.text, "output \"c\" has no place"));
    *o = was;
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

static void output_refused(const char *text, enum plan_mode mode, int node, const char *why)
{
    struct graph *g = rig_graph(text);
    struct plan_request r = rig_request(mode == PLAN_TRAIN ? "1f1b" : "forward", 4, 2, "auto");
    int asked = node >= 0 ? g->node[node].out : graph_input_first(g, ROLE_SAMPLE);
    r.mode = mode;
    r.output = &asked;
    r.n_outputs = node >= -1;
    struct made m = made_make(g, &rig_blocked, 1, NULL, r);
    ck_assert_msg(!m.p && m.e.code == 78 && strstr(m.e.text, why), "want \"%s\", got %d \"%s\"", why, m.e.code,
                  m.e.text);
    made_free(&m);
}

START_TEST(outputs_that_nobody_has_are_refused)
{
    static const char bare[] = "graph bare\ninput input 4\nfc = linear(input) features=3\noutput fc\n";
    output_refused(rig_skip, PLAN_TRAIN, -1, "\"input\" is an input of the network, no output");
    output_refused(rig_small_resnet, PLAN_EVAL, 1, "\"bn1\" cannot be an output: one kernel makes and uses it");
    output_refused(bare, PLAN_TRAIN, 0, "\"bare\" has no loss");
    output_refused(bare, PLAN_EVAL, -2, "\"bare\" has no loss");
}
END_TEST

START_TEST(too_many_micro_batches_are_refused)
{
    struct made m = made_make(rig_chain(1), &rig_plain, 1, NULL, rig_request("gpipe", 65536, 1, "auto"));
    ck_assert(m.p == NULL && m.e.code == 78 && strstr(m.e.text, "more than 65535 micro-batches"));
    made_free(&m);
}
END_TEST

/* bn(t) + t: the gradients of both inputs are one tensor, which a fused kernel would write over. */
START_TEST(one_tensor_twice_is_not_fused)
{
    static const char form[] =
        "graph b\ninput input 4x8x8\nlabels labels class\nc = conv(input) channels=16 kernel=3 layer=Conv2d\n"
        "bn = batch_norm(c) layer=BatchNorm2d\nsum = add(bn, %s) layer=Add\nr = relu(sum) layer=ReLU\nfl = flatten(r)\n"
        "fc = linear(fl) features=3 layer=Linear\nloss = mse(fc, labels)\nloss loss\noutput fc\n";
    char text[600];
    snprintf(text, sizeof text, form, "c");
    struct made m = made_make(rig_graph(text), &rig_blocked, 1, NULL, rig_request("gpipe", 4, 2, "auto"));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int i = 0; i < m.s->n_groups; i++) ck_assert_int_ne(m.s->group[i].kind, GROUP_BN_ADD_RELU);
    made_free(&m);
}
END_TEST

/* A rest of one sample, or a batch of one: only for the former another split helps. */
START_TEST(one_value_batch_norm_is_refused)
{
    static const char graph[] =
        "graph b\ninput input 4\nlabels labels class\nbn = batch_norm(input) layer=BatchNorm1d\n"
        "fc = linear(bn) features=3 layer=Linear\nloss = mse(fc, labels)\nloss loss\noutput fc\n";
    static const struct {
        int batch, split;
        const char *advice;
    } all[] = {{5, 2, "train.split_size"}, {1, 1, "train.batch_size"}};
    for (int i = 0; i < 2; i++) {
        struct made m =
            made_make(rig_graph(graph), &rig_plain, 1, NULL, rig_request("gpipe", all[i].batch, all[i].split, "auto"));
        ck_assert(m.p == NULL && m.e.code == 78 && strstr(m.e.text, "\"bn\"") && strstr(m.e.text, all[i].advice));
        made_free(&m);
    }
}
END_TEST

/* ---- partitions ------------------------------------------------------------------------------ */

static int split_of(const struct part_kind *k, const char *stages, const struct device *d, int n, int *cut,
                    struct err *e)
{
    struct text t = {0};
    text_add(&t,
             "model { network = \"resnet18\" input = {3, 32, 32} }\ndata { source = \"synthetic\" }\ntrain { steps = 1 "
             "}\npipeline { partition = \"%s\" stages = %d\n%s }\n",
             stages ? "manual" : "uniform", n, stages ? stages : "");
    struct conf *c = conf_parse("p.conf", t.s, t.n, e);
    text_free(&t);
    if (!c) return -1;
    int bad = conf_finish(c, e);
    struct graph *g = bad ? NULL : model_build(c, e);
    struct selection *s = g ? select_make(g, d, 1, e) : NULL;
    if (s) bad = k->split(&(struct part_request){.sel = s, .conf = c, .n_stages = n}, cut, e);
    select_free(s);
    graph_free(g);
    conf_free(c);
    return bad;
}

static void manual_refused(const char *stages, int n, const char *why)
{
    extern const struct part_kind part_manual;
    int cut[9];
    struct err e = {0};
    ck_assert(split_of(&part_manual, stages, &rig_blocked, n, cut, &e));
    ck_assert_msg(e.code == 78 && strstr(e.text, why) && !strncmp(e.text, "p.conf:", 7), "want \"%s\", got %d \"%s\"",
                  why, e.code, e.text);
}

START_TEST(manual_partitions)
{
    extern const struct part_kind part_manual;
    int cut[9];
    struct err e = {0};
    ck_assert_msg(!split_of(&part_manual, "stage { first = conv1 last = layer2 }\nstage { first = layer3 last = fc }",
                            &rig_blocked, 2, cut, &e),
                  "%s", e.text);
    ck_assert(cut[0] == 0 && cut[1] > 0 && cut[2] > cut[1]);
    ck_assert_msg(!split_of(&part_manual, "stage { first = conv1 last = avgpool }\nstage { first = fc last = fc }",
                            &rig_blocked, 2, cut, &e),
                  "%s", e.text);
    /* flatten is no layer of its own and stays with avgpool; fc and the loss are the rest */
    ck_assert_int_eq(cut[2] - cut[1], 2);
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer4 last = fc }", 2, "layer3.0.conv1");
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer2 last = fc }", 2, "already belongs");
    manual_refused("stage { first = conv1 last = layer1.1.bn7 }\nstage { first = layer3 last = fc }", 2,
                   "no layer \"layer1.1.bn7\" (did you mean layer1.1.bn2?)");
    manual_refused("stage { first = conv1 last = nolayer }\nstage { first = layer3 last = fc }", 2,
                   "no layer \"nolayer\"");
    manual_refused("stage { first = conv1 last = layer2 }\nstage { first = layer3 last = layer4 }", 2, "avgpool");
    manual_refused("stage { first = conv1 last = bn1 }\nstage { first = relu last = fc }", 2,
                   "cannot cut between \"bn1\" and \"relu\"");
    manual_refused("stage { first = bn1 last = layer2 }\nstage { first = layer3 last = fc }", 2, "conv1");
}
END_TEST

START_TEST(uniform_partitions)
{
    extern const struct part_kind part_uniform;
    int cut[100];
    struct err e = {0};
    for (int n = 1; n <= 8; n++) {
        ck_assert(!split_of(&part_uniform, NULL, &rig_blocked, n, cut, &e));
        for (int i = 0; i < n; i++) ck_assert(cut[i + 1] > cut[i] && cut[i + 1] - cut[i] <= (cut[n] + n - 1) / n);
    }
    part_merge((int[]){0, 2, 5, 9, 11}, 4, 2, cut);
    ck_assert(cut[0] == 0 && cut[1] == 5 && cut[2] == 11);
}
END_TEST

/* A cut must not change what is selected: groups, layouts and sizes come from the whole graph. */
START_TEST(fusion_patterns)
{
    struct graph *g = rig_graph(rig_small_resnet);
    struct selection *s = select_make(g, &rig_blocked, 4, NULL);
    int n[3] = {0}, nodes = 0;
    for (int i = 0; i < s->n_groups; i++) { n[s->group[i].kind]++; nodes += s->group[i].n_nodes; }
    ck_assert_int_eq(n[GROUP_BN_RELU], 2);               /* bn1, a.bn1 */
    ck_assert_int_eq(n[GROUP_BN_ADD_RELU], 2);           /* a.bn2 + pool, b.bn1 + b.bnd */
    ck_assert_int_eq(nodes, g->n_nodes);
    select_free(s);
    graph_free(g);
}
END_TEST

/* ---- golden plans: MPSTAGED_GOLDEN=write makes them anew ------------------------------------- */

struct golden {
    const char *name, *graph; const struct device *dev; int stages; const char *schedule, *backward; int bundle;
    const char *rows;
};
static const struct golden golden[] = {
    {"skip-4-gpipe", rig_skip, &rig_plain, 4, "gpipe", "auto"},
    {"tied-3-1f1b", rig_tied, &rig_plain, 3, "1f1b", "auto"},
    {"three-readers-2-naive", rig_three_readers, &rig_plain, 2, "naive", "split"},
    {"mlp-1-1f1b", rig_mlp_dropout, &rig_plain, 1, "1f1b", "auto"},
    {"skip-2-1f1b-bundles", rig_skip, &rig_plain, 2, "1f1b", "auto", 2},
    {"skip-2-rows-short", rig_skip, &rig_plain, 2, "rows", "auto", 1, /* three of five micro-batches */
     "rank 0: 0F0 0F1 0F2 0B0 0F3 0W0 0B1 0F4 0W1 0B2 0W2 0B3 0W3 0B4 0W4\n"
     "rank 1: 1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1F3 1B3 1W2 1F4 1B4 1W3 1W4\n"},
};

START_TEST(golden_plans)
{
    const struct golden *q = &golden[_i];
    const char *dir = getenv("srcdir");
    char path[512];
    struct text now = {0}, was = {0};
    struct err e = {0};
    struct plan_request want = rig_request(q->schedule, 7, 3, q->backward);
    want.bundle = q->bundle;
    want.rows = q->rows;
    want.rows_micro = q->rows ? 5 : 0;
    struct made m = made_make(rig_graph(q->graph), q->dev, q->stages, NULL, want);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    plan_print(m.p, &now);
    snprintf(path, sizeof path, "%s/tests/golden/%s.plan", dir ? dir : ".", q->name);
    if (getenv("MPSTAGED_GOLDEN")) {
        FILE *f = fopen(path, "w");
        ck_assert(f && fwrite(now.s, 1, now.n, f) == now.n && !fclose(f));
    }
    ck_assert_msg(!text_read_file(&was, path, 1 << 20, &e), "%s", e.text);
    ck_assert_msg(!strcmp(now.s, was.s), "%s: the plan changed; it is now:\n%s", path, now.s);
    text_free(&now); text_free(&was);
    made_free(&m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("plan");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, schedules_meet_formulas, 0, 3);
    tcase_add_test(t, micro_batches_are_exact);
    tcase_add_test(t, maps_are_values);
    tcase_add_loop_test(t, schedules_follow_the_map, 0, MAPS);
    tcase_add_loop_test(t, nothing_moves_within_a_rank, 0, MAPS);
    tcase_add_loop_test(t, homes_are_checked, 0, MAPS);
    tcase_add_test(t, in_flight_is_limited);
    tcase_add_test(t, tables_speak_of_ranks);
    tcase_add_loop_test(t, checker_rejects_mutations, 0, 3);
    tcase_add_loop_test(t, checker_wants_all_operands, 0, 3);
    tcase_add_test(t, rows_are_checked);
    tcase_add_test(t, rows_serve_short_batches);
    tcase_add_test(t, rows_of_short_batches_are_checked);
    tcase_add_loop_test(t, w_takes_several, 0, 3);
    tcase_add_loop_test(t, w_of_several_is_checked, 0, 3);
    tcase_add_test(t, slots_do_not_overlap);
    tcase_add_test(t, memory_follows_the_schedule);
    tcase_add_test(t, batch_norm_gradients_in_place);
    tcase_add_test(t, plans_are_pure);
    tcase_add_test(t, outputs_have_places);
    tcase_add_test(t, outputs_that_nobody_has_are_refused);
    tcase_add_test(t, too_many_micro_batches_are_refused);
    tcase_add_test(t, one_value_batch_norm_is_refused);
    tcase_add_test(t, one_tensor_twice_is_not_fused);
    tcase_add_test(t, manual_partitions);
    tcase_add_test(t, uniform_partitions);
    tcase_add_test(t, fusion_patterns);
    tcase_add_loop_test(t, golden_plans, 0, sizeof golden / sizeof *golden);
    suite_add_tcase(s, t);
    return suite_run(s, CK_FORK);
}
