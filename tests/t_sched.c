/* Schedules: against closed formulas, micro-batches in flight, rows from a file, those of short batches too. */
#include <math.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/render.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

/* One layer a stage, the loss with the last one; every pass of every stage costs the same and transfers are free. */
static struct made uniform_chain(const char *schedule, int p, int m, enum backward_mode backward, struct cost **k,
                                  double f, double b, double w)
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
    struct made x = uniform_chain(schedule, p, m, split ? BACKWARD_SPLIT : BACKWARD_JOINED, &k, f, b, w);
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

START_TEST(schedules_meet_formulas)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 32; m++)
            for (int split = 0; split < 2; split++) formulas(rig_schedules[_i], p, m, split);
}
END_TEST

/* Whatever is in the list: plan_make checks each plan, and the simulation ends. Only a schedule that wants several
 * stages a rank may refuse one. */
START_TEST(every_schedule_is_legal)
{
    for (int k = 0; sched_list[k]; k++)
        for (int p = 1; p <= 8 && !sched_list[k]->eval && !sched_list[k]->chunks; p++)
            for (int m = 1; m <= 32; m++) {
                struct cost *c;
                struct made x = uniform_chain(sched_list[k]->name, p, m, m % 2 ? BACKWARD_SPLIT : BACKWARD_JOINED, &c,
                                              10, 12, 8);
                struct sim *s = plan_simulate(x.p, c, NULL);
                ck_assert_msg(s && s->wall_ns >= m * 30.0, "%s, %d stages, %d micro-batches", sched_list[k]->name, p,
                              m);
                sim_free(s);
                cost_free(c);
                made_free(&x);
            }
}
END_TEST

/* A limit that the list's schedules keep, on graphs whose gradients come from several stages. */
START_TEST(every_schedule_keeps_limits)
{
    for (int k = 0; sched_list[k]; k++)
        for (int limit = 1; limit <= 5 && !sched_list[k]->eval && !sched_list[k]->chunks; limit++) {
            struct plan_request r = rig_request(sched_list[k]->name, 8, 2, BACKWARD_AUTO);
            r.in_flight = limit;
            struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, r);
            ck_assert_msg(m.p != NULL, "%s: %s", sched_list[k]->name, m.e.text);
            for (int i = 0; i < 3; i++)
                ck_assert_msg(m.p->stage[i].in_flight <= limit, "%s, limit %d: stage %d keeps %d", sched_list[k]->name,
                              limit, i, m.p->stage[i].in_flight);
            made_free(&m);
        }
}
END_TEST

/* No stage keeps more than it may, and nothing is kept below that without need. */
START_TEST(in_flight_is_limited)
{
    for (int k = 0; k < 3; k++)
        for (int limit = 1; limit <= 5; limit++) {
            struct plan_request r = rig_request(rig_schedules[k], 8, 2, BACKWARD_AUTO);
            r.in_flight = limit;
            struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, r);
            ck_assert_msg(m.p != NULL, "%s", m.e.text);
            for (int i = 0; i < 3; i++) {
                int most = in_flight_wanted(rig_schedules[k], 3, 4, i);
                ck_assert_int_eq(m.p->stage[i].in_flight, limit < most ? limit : most);
            }
            made_free(&m);
        }
    struct plan_request r = rig_request("gpipe", 8, 2, BACKWARD_AUTO);
    r.in_flight = -1;
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, r);
    ck_assert(!m.p && m.e.code == 78);
    made_free(&m);
    r = rig_request("rows", 8, 2, BACKWARD_AUTO);
    r.rows = "rank 0:\nrank 1:\n";
    r.in_flight = 2;
    m = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, r);
    ck_assert(!m.p && m.e.code == 78 && says(m.e.text, "in flight"));
    made_free(&m);
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
            struct plan_request r = rig_request("1f1b", n, k, BACKWARD_AUTO);
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

/* ---- rows ------------------------------------------------------------------------------------ */

static void rows_refused(const char *rows, const char *why)
{
    struct plan_request r = rig_request("rows", 2, 1, BACKWARD_SPLIT);
    int cut[] = {0, 1, 3};
    r.rows = rows;
    struct made m = made_make(rig_chain(2), &rig_plain, 2, cut, r);
    ck_assert_msg(m.p == NULL && m.e.code == 65 && says(m.e.text, why), "want \"%s\", got %d \"%s\"", why, m.e.code,
                  m.e.text);
    made_free(&m);
}

START_TEST(rows_are_checked)
{
    struct plan_request r = rig_request("rows", 2, 1, BACKWARD_JOINED);
    int cut[] = {0, 1, 3};
    r.rows = "rank 0: 0F0 0F1 0B0 0W0 0B1 0W1\nrank 1: 1F0 1B0 1W0 1F1 1B1 1W1\n";
    struct made m = made_make(rig_chain(2), &rig_plain, 2, cut, r),
                same = made_make(rig_chain(2), &rig_plain, 2, cut, rig_request("1f1b", 2, 1, BACKWARD_JOINED));
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
    rows_refused("rank 0: 0F0 0B0 0W0\n\nrank 1: 1F0 1B0 1W0 60000F1\n", "rows:3: 60000F1:");
    rows_refused("rank 0: 0F0 0B0 0W0 0F60000\nrank 1:\n", "rows:1: 0F60000:");
    rows_refused("rank 0: 0F0 1F1\nrank 1:\n", "rows:1: 1F1:");
    rows_refused("rank 0: 0F0 0B0 0F0\nrank 1:\n", "rows:1: 0F0:");
    rows_refused("rank 0: 0F0 0F9x 0B0\nrank 1: 1F0\n", "rows:1: \"0F9x\"");
    rows_refused("rank 0: 0F0\n", "rank 1 has no row");
    rows_refused("rank 7: 0F0\n", "rows:1: rank 7");
    rows_refused("nonsense\n", "rows:1: ");
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
            struct plan_request r = rig_request("rows", 2 * n - 1, 2, BACKWARD_SPLIT);
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
        {ROW0 " 0F2\n" ROW1, 1, 2, "rows:1: 0F2:|2"},
        {ROW0 " 0F1\n" ROW1, 1, 2, "rows:1: 0F1:"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct plan_request r = rig_request("rows", wrong[i].batch, 1, BACKWARD_SPLIT);
        r.rows = wrong[i].rows;
        r.rows_micro = wrong[i].micro;
        struct made m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r);
        ck_assert_msg(!m.p && m.e.code == 65 && says(m.e.text, wrong[i].why), "want \"%s\", got %d \"%s\"",
                      wrong[i].why, m.e.code, m.e.text);
        made_free(&m);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("sched", 120);
    tcase_add_loop_test(t, schedules_meet_formulas, 0, N_SCHEDULES);
    tcase_add_test(t, every_schedule_is_legal);
    tcase_add_test(t, every_schedule_keeps_limits);
    tcase_add_test(t, in_flight_is_limited);
    tcase_add_test(t, micro_batches_are_exact);
    tcase_add_test(t, rows_are_checked);
    tcase_add_test(t, rows_serve_short_batches);
    tcase_add_test(t, rows_of_short_batches_are_checked);
    return suite_run("sched", CK_FORK, t);
}
