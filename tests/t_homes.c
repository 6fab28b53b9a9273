/* Several stages per rank: which rank has them, where their tensors and weights lie, and what the checker requires
 * there. */
#include <string.h>
#include "plan/cost.h"
#include "plan/render.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

static struct made on_map(int map, const char *graph, struct plan_request r)
{
    return made_on(rig_graph(graph), &rig_plain, rig_maps[map].stages, rig_maps[map].ranks, rig_maps[map].rank_of, r);
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
    ck_assert(stage_map_make(mem, 3, 3, (int[]){0, 1, 0}, &m, &e) && e.code == 78 && says(e.text, "rank 2 of 3"));
    e.code = 0;
    ck_assert(stage_map_make(mem, 2, 2, (int[]){0, 2}, &m, &e) && e.code == 78 && says(e.text, "stage 1 on rank 2"));
    arena_free(mem);
}
END_TEST

/* naive and gpipe take any map, 1f1b says what it wants. */
START_TEST(schedules_follow_the_map)
{
    for (int k = 0; k < 2; k++) {
        struct made m = on_map(_i, rig_skip, rig_request(rig_schedules[k], 7, 2, BACKWARD_AUTO));
        ck_assert_msg(m.p != NULL, "%s, %s: %s", rig_schedules[k], rig_maps[_i].name, m.e.text);
        struct cost *c = cost_estimate(m.s);
        struct sim *s = plan_simulate(m.p, c, &m.e);
        ck_assert_msg(s != NULL, "%s", m.e.text);
        ck_assert(plan_bound(m.p, c) <= s->wall_ns * (1 + 1e-12) && plan_bound(m.p, c) > 0);
        for (int i = 0; i < m.p->n_stages; i++) ck_assert_int_eq(m.p->stage[i].rank, rig_maps[_i].rank_of[i]);
        sim_free(s);
        cost_free(c);
        made_free(&m);
    }
    struct made m = on_map(_i, rig_skip, rig_request("1f1b", 7, 2, BACKWARD_AUTO));
    ck_assert(!m.p && m.e.code == 78 && says(m.e.text, "schedule \"1f1b\""));
    made_free(&m);
}
END_TEST

/* A tensor lies in one place of a rank, whichever of its stages have it; no message stays on a rank; a weight is there
 * once, and an accumulator for each use on the owner's rank and for those of others on theirs. */
static void homes_are_one(const struct made *m, const char *what)
{
    const struct plan *p = m->p;
    size_t params[8] = {0};
    for (int i = 0; i < p->n_chan; i++) ck_assert_int_ne(p->chan[i].from.at[AXIS_PP], p->chan[i].to.at[AXIS_PP]);
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
    for (int i = 0; i < HOMED * 6; i++) {
        struct plan_request r = rig_request(rig_schedules[i % 2], 14, 2, rig_backwards[i / 2 % 3]);
        bool recompute[64];
        for (int g = 0; g < 64; g++) recompute[g] = g % 3 != 1;
        r.recompute = i % 4 == 3 ? recompute : NULL;
        struct made m = on_map(_i, homed[i / 6], r);
        ck_assert_msg(m.p != NULL, "%s, %s: %s", rig_maps[_i].name, r.schedule, m.e.text);
        homes_are_one(&m, rig_maps[_i].name);
        loads_are_one(m.p, rig_maps[_i].name);
        made_free(&m);
    }
    struct made e = on_map(_i, rig_skip, (struct plan_request){.mode = PLAN_EVAL, .schedule = "forward", .batch = 9,
                                                               .split = 2});
    ck_assert_msg(e.p != NULL, "%s", e.e.text);
    homes_are_one(&e, rig_maps[_i].name);
    made_free(&e);
}
END_TEST

/* One place more or less, and the plan is illegal. */
static void state_refused(struct made *m, const char *why)
{
    struct err e = {0};
    ck_assert(plan_check(m->p, &e) && e.code == 70);
    ck_assert_msg(says(e.text, why), "%s", e.text);
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
    struct made m = on_map(_i, rig_tied, rig_request("gpipe", 8, 2, BACKWARD_SPLIT));
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
        int was = m.p->chan[i].to.at[AXIS_PP];
        m.p->chan[i].to.at[AXIS_PP] = m.p->chan[i].from.at[AXIS_PP];
        e.code = 0;
        ck_assert(plan_check(m.p, &e) && says(e.text, "to itself"));
        m.p->chan[i].to.at[AXIS_PP] = was;
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
    struct made m = on_map(1, rig_skip, rig_request("gpipe", 8, 2, BACKWARD_AUTO));
    struct made same = made_make(rig_graph(rig_skip), &rig_plain, 2, NULL, rig_request("gpipe", 8, 2, BACKWARD_AUTO));
    struct cost *k = cost_estimate(m.s);
    struct text t = {0};
    plan_table(m.p, k, NULL, 80, &t);
    ck_assert_msg(strstr(t.s, "stage rank  layers") && strstr(t.s, "\n    2    1  ") && strstr(t.s, "\n    3    0  ") &&
                  strstr(t.s, "\n rank     weights") && strstr(t.s, "of each rank:"), "%s", t.s);
    text_free(&t);
    t = (struct text){0};
    plan_table(same.p, k, NULL, 80, &t);
    ck_assert_msg(!strstr(t.s, "rank  ") && strstr(t.s, "\nstage     weights"), "%s", t.s);
    text_free(&t);
    char *json = plan_json(m.p, k, NULL);
    int n = 0;
    for (const char *at = json; (at = strstr(at, "\"peak_bytes\"")); at++) n++;
    ck_assert_int_eq(n, 2);
    free(json);
    cost_free(k);
    made_free(&m);
    made_free(&same);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("homes", 120);
    tcase_add_test(t, maps_are_values);
    tcase_add_loop_test(t, schedules_follow_the_map, 0, N_MAPS);
    tcase_add_loop_test(t, nothing_moves_within_a_rank, 0, N_MAPS);
    tcase_add_loop_test(t, homes_are_checked, 0, N_MAPS);
    tcase_add_test(t, tables_speak_of_ranks);
    return suite_run("homes", CK_FORK, t);
}
