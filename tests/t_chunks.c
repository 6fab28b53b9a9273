/* Schedules with several stages per rank, and those that delay W: against closed formulas, for every shape up to 8
 * ranks, 4 stages per rank and 32 micro-batches. LONG=1 in the environment: all of these; otherwise some. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/sched.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "sure.h"

struct pipe { int p, v, m; };
struct costs { double f, b, w; };                        /* of a micro-batch on a rank */
static const struct costs EQUAL = {12, 12, 12}, SKEWED = {10, 12, 8};

/* One layer a stage, the loss with the last one; every pass of every stage costs the same and transfers are free. */
struct uniform { struct made x; struct cost *k; struct sim *s; struct pipe shape; struct costs c; };

static struct cost *costs_of(struct pipe a, struct costs c)
{
    int n = a.p * a.v;
    struct cost *k = cost_new("test", n + 1, 1);
    k->bytes_per_ns = INFINITY;
    k->size[0] = 1;
    for (int i = 0; i < n; i++) {
        *cost_cell(k, 0, PH_FWD, i) = c.f / a.v;
        *cost_cell(k, 0, PH_BWD_DATA, i) = c.b / a.v;
        *cost_cell(k, 0, PH_BWD_WEIGHTS, i) = c.w / a.v;
    }
    return k;
}

static struct uniform uniform_of(const char *schedule, struct pipe a, enum backward_mode backward, int in_flight,
                                 struct costs c)
{
    const struct sched_kind *k = sched_find(schedule);
    struct uniform u = {.shape = a, .c = c};
    struct plan_request r = rig_request(schedule, a.m, 1, backward);
    int rank_of[32], n = a.p * a.v;
    for (int i = 0; i < n; i++) rank_of[i] = sched_rank_of(k, i, a.p);
    r.in_flight = in_flight;
    u.k = costs_of(a, c);
    r.cost = u.k;
    u.x = made_on(rig_chain(n), &rig_plain, n, a.p, rank_of, r);
    sure(u.x.p != NULL, "%s, p %d v %d m %d: %s", schedule, a.p, a.v, a.m, u.x.e.text);
    u.s = plan_simulate(u.x.p, u.k, &u.x.e);
    sure(u.s != NULL, "%s, p %d v %d m %d: %s", schedule, a.p, a.v, a.m, u.x.e.text);
    return u;
}

static void uniform_free(struct uniform *u)
{
    sim_free(u->s);
    cost_free(u->k);
    made_free(&u->x);
}

/* Of the step, on any rank. */
static double idle_of(const struct uniform *u) { return u->s->wall_ns - u->shape.m * (u->c.f + u->c.b + u->c.w); }

static bool is_compute(const struct act *a) { return act_info[a->op].kind == KIND_PROGRAM; }

/* Between a rank's first and last action: what a step costs whose ranks need not wait for each other at its end. */
static double span_idle(const struct uniform *u, int rank)
{
    const struct plan *p = u->x.p;
    double from = -1, to = 0, busy = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        if (!is_compute(&p->row[rank][i])) continue;
        if (from < 0) from = u->s->start[rank][i];
        to = u->s->end[rank][i];
        busy += u->s->end[rank][i] - u->s->start[rank][i];
    }
    return to - from - busy;
}

/* Most micro-batches of stages that a rank keeps from F until neither B nor W needs them; the plan says the same of
 * each of its stages, each at its own peak. */
static int kept_of(const struct plan *p, int rank)
{
    int now = 0, most = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        if (a->op == ACT_F && ++now > most) most = now;
        if (a->op == ACT_W || a->op == ACT_D) now -= a->n_mb;
    }
    return most;
}

static void kept_most(const struct uniform *u, int rank, int most)
{
    const struct stage_map *m = &u->x.pl->map;
    int kept = kept_of(u->x.p, rank), told = 0;
    for (int i = 0; i < m->n_stages_of[rank]; i++) told += u->x.p->stage[m->stages_of[rank][i]].in_flight;
    sure(m->n_stages_of[rank] == 1 ? told == kept : told >= kept, "%s, p %d m %d: rank %d keeps %d, the plan says %d",
         u->x.p->req.schedule, u->shape.p, u->shape.m, rank, kept, told);
    sure(kept <= most, "%s, p %d v %d m %d: rank %d keeps %d, more than %d", u->x.p->req.schedule, u->shape.p,
         u->shape.v, u->shape.m, rank, kept, most);
}

static int least(int a, int b) { return a < b ? a : b; }
static bool is_long(void) { return getenv("LONG") != NULL; }

/* The micro-batches that are tried with p ranks of v stages; the next one after m. */
static int next_m(struct pipe a)
{
    if (is_long() || a.p * a.v <= 4) return a.m + 1;
    return a.m < 3 ? a.m + 1 : a.m + (a.m % a.p ? a.p - a.m % a.p : 5);
}

#define EACH_SHAPE(a, ranks, most_v) \
    for (struct pipe a = {ranks, 1, 1}; a.v <= (most_v); a.v++) for (a.m = 1; a.m <= 32; a.m = next_m(a))

/* ---- interleaved: idle (p-1)(F+B+W)/v, and Megatron-LM's count of what is kept (Narayanan et al. 2021) ---- */

static void interleaved_kept(const struct uniform *u)
{
    struct pipe a = u->shape;
    for (int r = 0; r < a.p; r++)
        kept_most(u, r, least(a.m * a.v, (a.v - 1) * a.p + 2 * (a.p - r - 1) + 1));
}

START_TEST(interleaved_meets_its_formula)
{
    EACH_SHAPE(a, _i, 4) {
        struct uniform u = uniform_of("interleaved", a, BACKWARD_JOINED, 0, SKEWED);
        double whole = (a.p - 1) * 30.0, idle = idle_of(&u);
        if (a.m % a.p == 0) {
            sure(fabs(idle - whole / a.v) < 1e-6, "p %d v %d m %d: idle %g", a.p, a.v, a.m, idle);
            interleaved_kept(&u);
        } else
            sure(idle <= whole + 1e-6, "p %d v %d m %d: idle %g, 1f1b's %g", a.p, a.v, a.m, idle, whole);
        uniform_free(&u);
    }
}
END_TEST

/* ---- zb-h1: idle (p-1)(F+B-W), with 2p-1 in flight (p-1) max(F, F+B-2W); p and 2p-1 micro-batches kept, those that
 * only wait for W among them (Qi et al. 2024, tables 1 and 2; with a flush at the end of the step) ---- */

static void late_meets(struct pipe a, struct costs c, int most, double want)
{
    struct uniform u = uniform_of("zb-h1", a, BACKWARD_AUTO, most, c);
    bool full = a.m >= (most ? most : a.p);
    double idle = idle_of(&u), early = (a.p - 1) * (c.f + c.b);
    sure(full ? fabs(idle - want) < 1e-6 : idle <= early + 1e-6, "p %d m %d, %d in flight: idle %g, formula %g", a.p,
         a.m, most, idle, want);
    for (int r = 0; r < a.p; r++) kept_most(&u, r, most ? most : a.p);
    uniform_free(&u);
}

START_TEST(zb_h1_meets_its_formulas)
{
    EACH_SHAPE(a, _i, 1)
        for (int k = 0; k < 2; k++) {
            struct costs c = k ? SKEWED : EQUAL;
            double later = c.f + c.b - 2 * c.w;
            late_meets(a, c, 0, (a.p - 1) * (c.f + c.b - c.w));
            late_meets(a, c, 2 * a.p - 1, (a.p - 1) * (c.f > later ? c.f : later));
        }
}
END_TEST

/* ---- zb-v: where F = B = W no rank waits between its first and its last pass, and a step ends when the last rank's
 * late begin is made up for: (p-1) F of a stage; p micro-batches kept on each rank (Qi et al. 2024, section 6) ---- */

START_TEST(zb_v_meets_its_formula)
{
    EACH_SHAPE(a, _i, 4) {
        struct uniform u = uniform_of("zb-v", a, BACKWARD_AUTO, 0, EQUAL);
        double idle = idle_of(&u);
        for (int r = 0; r < a.p; r++) kept_most(&u, r, a.p * a.v);
        if (a.v == 2 && a.m >= 2 * a.p - 1) {
            for (int r = 0; r < a.p; r++)
                sure(fabs(span_idle(&u, r)) < 1e-6, "p %d m %d: rank %d waits %g", a.p, a.m, r, span_idle(&u, r));
            sure(fabs(idle - (a.p - 1) * EQUAL.f / 2) < 1e-6, "p %d m %d: idle %g", a.p, a.m, idle);
        } else                                           /* what 1f1b's is where gradients are sent early */
            sure(idle <= (a.p - 1) * (EQUAL.f + EQUAL.b) + 1e-6, "p %d v %d m %d: idle %g", a.p, a.v, a.m, idle);
        uniform_free(&u);
    }
}
END_TEST

/* ---- auto: not slower than any of them for the same stages, whatever passes cost ---- */

static double step_of(const char *schedule, struct pipe a, struct costs c)
{
    struct uniform u = uniform_of(schedule, a, BACKWARD_SPLIT, 0, c);
    double ns = u.s->wall_ns;
    uniform_free(&u);
    return ns;
}

START_TEST(auto_is_no_slower)
{
    static const struct costs all[] = {{12, 12, 12}, {10, 12, 8}, {10, 20, 5}, {8, 10, 10}};
    for (int k = 0; k < 4; k++)
        for (int v = 1; v <= 2; v++)
            for (int m = 1; m <= (is_long() ? 32 : 11); m += is_long() ? 1 : 5) {
                struct pipe a = {_i, v, m};
                struct uniform u = uniform_of("auto", a, BACKWARD_SPLIT, 0, all[k]);
                double ns = step_of(v > 1 ? "zb-v" : "zb-h1", a, all[k]);
                sure(u.s->wall_ns <= ns * 1.001 + 1e-6, "p %d v %d m %d: auto %g, the paper's %g", _i, v, m,
                     u.s->wall_ns, ns);
                uniform_free(&u);
            }
}
END_TEST

/* Of a rank that has too little memory for the fastest, the fastest that fits; where nothing fits, the least. */
START_TEST(auto_keeps_to_memory)
{
    struct pipe a = {_i, 2, 12};
    struct uniform free_ = uniform_of("auto", a, BACKWARD_SPLIT, 0, SKEWED);
    struct uniform least_ = uniform_of("auto", a, BACKWARD_SPLIT, 1, SKEWED);
    uint64_t limit[8], most = plan_rank_bytes(free_.x.p, 0), least = plan_rank_bytes(least_.x.p, 0);
    struct plan_request r = rig_request("auto", a.m, 1, BACKWARD_SPLIT);
    r.cost = free_.k;
    r.limit = limit;
    for (int k = 0; k < 4; k++) {
        size_t need = 0, of_least = 0;                   /* where nothing fits: no more than with one in flight */
        for (int i = 0; i < _i; i++) limit[i] = k < 3 ? least + (most - least) * (uint64_t)k / 2 : least / 2;
        struct plan *p = plan_make(free_.x.s, free_.x.pl, &r, &free_.x.e);
        sure(p != NULL, "%s", free_.x.e.text);
        for (int i = 0; i < _i; i++) {
            size_t one = plan_rank_bytes(least_.x.p, i), bytes = plan_rank_bytes(p, i);
            sure(k == 3 || bytes <= limit[i] || one > limit[i], "rank %d: %zu of %zu bytes", i, bytes,
                 (size_t)limit[i]);
            need += bytes;
            of_least += one;
        }
        sure(k < 3 || need <= of_least, "%zu bytes where %zu would do", need, of_least);
        plan_free(p);
    }
    uniform_free(&free_);
    uniform_free(&least_);
}
END_TEST

/* Stages of unequal costs, under which ranks run further ahead of their neighbours than one micro-batch: slots that
 * were sent must not make them wait for each other. */
START_TEST(auto_runs_ahead)
{
    enum { P = 16, M = 32 };
    struct cost *k = costs_of((struct pipe){P, 1, M}, SKEWED);
    uint32_t x = 1 + (uint32_t)_i;
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int i = 0; i < P; i++) {
            x = x * 1664525 + 1013904223;
            *cost_cell(k, 0, (enum phase)ph, i) = 5 + x / 65536 % 20;
        }
    struct plan_request r = rig_request("auto", M, 1, BACKWARD_SPLIT);
    r.cost = k;
    struct made m = made_make(rig_chain(P), &rig_plain, P, NULL, r);
    sure(m.p != NULL, "%s", m.e.text);
    for (int i = 0; i < P; i++) sure(kept_of(m.p, i) <= 2 * P - 1, "rank %d keeps %d", i, kept_of(m.p, i));
    made_free(&m);
    cost_free(k);
}
END_TEST

/* ---- all of them ---- */

static const char *const chunked[] = {"interleaved", "breadth-first", "zb-v", "auto"};
enum { CHUNKED = sizeof chunked / sizeof *chunked };

/* Whatever the limit, which counts all stages of a rank: it is kept, and the rows run to their end. */
START_TEST(limits_are_kept)
{
    for (int k = 0; k < CHUNKED; k++)
        for (int v = 1; v <= 4; v++)
            for (int limit = 1; limit <= 2 * _i + 1; limit++)
                for (int m = 1; m <= 9; m += is_long() ? 1 : 4) {
                    struct uniform u = uniform_of(chunked[k], (struct pipe){_i, v, m}, BACKWARD_SPLIT, limit, SKEWED);
                    for (int r = 0; r < _i; r++) kept_most(&u, r, limit * v);
                    uniform_free(&u);
                }
}
END_TEST

/* Stages that are not as many on each rank, or not where they belong. */
START_TEST(maps_are_refused)
{
    static const struct { int stages, ranks, rank_of[8]; const char *why; } wrong[] = {
        {3, 2, {0, 1, 0}, "3 stages|2 ranks"},
        {4, 2, {0, 0, 1, 1}, "stage 1 on rank 1|0"},
        {6, 2, {0, 0, 0, 1, 1, 1}, "stage 1 on rank 1|0"},
    };
    for (int k = 0; k < CHUNKED; k++)
        for (int i = 0; i < 3; i++) {
            struct made m = made_on(rig_chain(8), &rig_plain, wrong[i].stages, wrong[i].ranks, wrong[i].rank_of,
                                    rig_request(chunked[k], 4, 1, BACKWARD_AUTO));
            sure(!m.p && m.e.code == 78 && says(m.e.text, wrong[i].why), "%s: %s", chunked[k], m.e.text);
            made_free(&m);
        }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("chunks", 600);
    tcase_add_loop_test(t, interleaved_meets_its_formula, 1, 9);
    tcase_add_loop_test(t, zb_h1_meets_its_formulas, 1, 9);
    tcase_add_loop_test(t, zb_v_meets_its_formula, 1, 9);
    tcase_add_loop_test(t, auto_is_no_slower, 1, 6);
    tcase_add_loop_test(t, auto_keeps_to_memory, 1, 4);
    tcase_add_loop_test(t, auto_runs_ahead, 0, 8);
    tcase_add_loop_test(t, limits_are_kept, 1, 6);
    tcase_add_test(t, maps_are_refused);
    return suite_run("chunks", CK_FORK, t);
}
