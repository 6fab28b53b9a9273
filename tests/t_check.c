/* The checker: plans with one error each. W of several micro-batches, as they are planned and as they are forbidden. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/render.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

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
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL,
                              rig_request(rig_schedules[_i], 7, 2, BACKWARD_SPLIT));
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

/* The row without its i-th action, or with it behind the k-th, is illegal. */
static void tail_changes_are_seen(struct plan *p, int r, int i, int behind)
{
    struct act *row = p->row[r], saved = row[i];
    int len = p->row_n[r];
    memmove(row + i, row + i + 1, (size_t)(len - i - 1) * sizeof *row);
    if (behind < 0) p->row_n[r]--;
    else {
        memmove(row + behind + 1, row + behind, (size_t)(len - behind - 1) * sizeof *row);
        row[behind] = saved;
    }
    ck_assert_msg(plan_check(p, NULL), "action %d of rank %d may %s", i, r, behind < 0 ? "be left out" : "come later");
    if (behind < 0) p->row_n[r]++;
    else memmove(row + behind, row + behind + 1, (size_t)(len - behind - 1) * sizeof *row);
    memmove(row + i + 1, row + i, (size_t)(len - i - 1) * sizeof *row);
    row[i] = saved;
}

static int action_find(const struct plan *p, int r, enum act_op op, int chan)
{
    for (int i = 0; i < p->row_n[r]; i++) if (p->row[r][i].op == op && p->row[r][i].chan == chan) return i;
    return -1;
}

/* Both ends of a channel's posts are left out, so that the link itself is in order. */
START_TEST(checker_follows_tied_weights)
{
    struct plan_request q = rig_request("1f1b", 7, 2, BACKWARD_SPLIT);
    struct made m = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, q);
    int tied = 0;
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int c = 0; c < m.p->n_chan; c++) {
        const struct channel *h = &m.p->chan[c];
        bool grad = h->kind == CHAN_PGRAD;
        if (!grad && h->kind != CHAN_PARAM) continue;
        int from = h->from.at[AXIS_PP], to = h->to.at[AXIS_PP];
        int sent = action_find(m.p, from, grad ? ACT_SP : ACT_SU, c);
        int got = action_find(m.p, to, grad ? ACT_RP : ACT_RU, c), update = action_find(m.p, to, ACT_O, -1);
        struct act *row = m.p->row[from], first = row[sent];
        int len = m.p->row_n[from];
        memmove(row + sent, row + sent + 1, (size_t)(len - sent - 1) * sizeof *row);
        m.p->row_n[from]--;
        tail_changes_are_seen(m.p, to, got, -1);
        m.p->row_n[from]++;
        memmove(row + sent + 1, row + sent, (size_t)(len - sent - 1) * sizeof *row);
        row[sent] = first;
        if (grad) tail_changes_are_seen(m.p, to, got, update);
        else tail_changes_are_seen(m.p, from, action_find(m.p, from, ACT_O, -1), sent);
        tied++;
    }
    ck_assert_int_ge(tied, 2);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* The norms, on which it depends whether there is an update: neither is left out, they do not change places, and
 * nothing that computes comes behind. */
START_TEST(checker_wants_norms_before_the_update)
{
    struct made m = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL,
                              rig_request(rig_schedules[_i], 7, 2, BACKWARD_SPLIT));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int r = 0; r < 3; r++) {
        int norms = action_find(m.p, r, ACT_N, -1), update = action_find(m.p, r, ACT_O, -1);
        ck_assert_int_ge(norms, 0);
        tail_changes_are_seen(m.p, r, norms, -1);
        tail_changes_are_seen(m.p, r, norms, update);
        tail_changes_are_seen(m.p, r, update, -1);
        for (int i = 0; i < norms; i++)
            if (m.p->row[r][i].op == ACT_W) tail_changes_are_seen(m.p, r, i, norms);
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* A place that is missing where it is needed. */
static void place_is_wanted(const struct plan *p, size_t *at)
{
    size_t was = *at;
    if (was == STATE_NOWHERE) return;
    *at = STATE_NOWHERE;
    ck_assert(plan_check(p, NULL));
    *at = was;
}

START_TEST(checker_wants_all_state)
{
    struct made m = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 2, BACKWARD_SPLIT));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    struct placement *pl = m.pl;
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < pl->n_state; i++) place_is_wanted(m.p, &pl->state[i].off[r]);
        for (int k = 0; k < pl->use_first[m.g->n_params]; k++) place_is_wanted(m.p, &pl->use_off[r][k]);
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* Any number of any micro-batch, changed: they are no longer the batch. */
START_TEST(checker_wants_the_whole_batch)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, rig_request("gpipe", 5, 2, BACKWARD_SPLIT));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    ck_assert_int_eq(m.p->n_mb, 3);
    int *all[] = {&m.p->mb_n[0],     &m.p->mb_n[1],     &m.p->mb_n[2], &m.p->mb_first[0],
                  &m.p->mb_first[1], &m.p->mb_first[2], &m.p->n_mb,    &m.p->req.batch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err e = {0};
        --*all[i];
        ck_assert_msg(plan_check(m.p, &e) && e.code == 70, "%zu: one less passes", i);
        ++*all[i];
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* What a batch norm keeps for its statistics is kept of every micro-batch. */
START_TEST(checker_wants_all_statistics)
{
    struct text t = {0};
    text_add(&t, "%slabels labels class\nloss = softmax_cross_entropy(fc, labels)\nloss loss\n", rig_small_resnet);
    struct made m = made_make(rig_graph(t.s), &rig_blocked, 1, NULL, rig_request("gpipe", 30, 3, BACKWARD_JOINED));
    text_free(&t);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    int seen = 0;
    for (int g = 0; g < m.s->n_groups; g++) {
        struct place *x = &m.p->stage[0].saved_place[g];
        if (!m.s->group[g].has_stats) continue;
        ck_assert(x->space == SP_SLOT && m.p->cls[x->cls].n_slots == 10);
        x->bytes -= 64;
        ck_assert(plan_check(m.p, NULL));
        x->bytes += 64;
        seen++;
    }
    ck_assert_int_eq(seen, 5);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* A forward pass touches every class that it names: without any one of them the plan is illegal. */
START_TEST(checker_wants_all_operands)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL,
                              rig_request(rig_schedules[_i], 7, 2, BACKWARD_SPLIT));
    int tried = 0;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < m.p->row_n[r]; i++) {
            struct act *a = &m.p->row[r][i];
            struct opnd *o = &m.p->opnd[a->opnd], last = o[a->n_opnd ? a->n_opnd - 1 : 0];
            for (int k = 0; a->op == ACT_F && k < a->n_opnd; k++, tried++) {
                struct opnd gone = o[k];
                o[k] = last;
                a->n_opnd--;
                ck_assert_msg(plan_check(m.p, NULL), "%s: operand %d may be left out", rig_schedules[_i], k);
                a->n_opnd++;
                o[k] = gone;
            }
        }
    ck_assert_int_gt(tried, 12);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* ---- W of several micro-batches -------------------------------------------------------------- */

static struct made many_made(const char *schedule, int n_mb, int n)
{
    struct plan_request r = rig_request(schedule, 2 * n_mb - 1, 2, BACKWARD_SPLIT);
    struct made m = {.g = rig_graph(rig_skip)};
    struct sched rows;
    int cut[4];
    m.s = select_make(m.g, &rig_plain, 2, &m.e);
    for (int i = 0; i <= 3; i++) cut[i] = i * m.s->n_groups / 3;
    m.pl = rig_place(m.s, 3, cut, 1, &m.e);
    rig_rows(schedule, 3, 3, NULL, n_mb, n, &rows);
    m.p = plan_make_from(m.s, m.pl, &r, &rows, &m.e);
    ck_assert_msg(m.p != NULL, "%s, W of %d: %s", schedule, n, m.e.text);
    sched_free(&rows);
    return m;
}

/* Ws and the micro-batches that they take, and the text of each. */
static void many_are_whole(const struct plan *p, int n)
{
    for (int r = 0; r < 3; r++) {
        int next = 0;
        for (int i = 0; i < p->row_n[r]; i++) {
            const struct act *a = &p->row[r][i];
            char got[32], want[32];
            if (a->op != ACT_W) { ck_assert_int_eq(a->n_mb, 1); continue; }
            int left = p->n_mb - next, take = left < n ? left : n;
            ck_assert(a->mb == next && a->n_mb == take && ((a->flags & ACT_FIRST) != 0) == (next == 0));
            if (take > 1) snprintf(want, sizeof want, "%dW%d-%d", r, next, next + take - 1);
            else snprintf(want, sizeof want, "%dW%d", r, next);
            ck_assert_str_eq(act_text(p, a, got), want);
            next += take;
        }
        ck_assert_int_eq(next, p->n_mb);
    }
}

START_TEST(w_takes_several)
{
    for (int n = 1; n <= 8; n++) {
        struct made m = many_made(rig_schedules[_i], 7, n),
                    same = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL,
                                     rig_request(rig_schedules[_i], 13, 2, BACKWARD_SPLIT));
        struct cost *k = cost_estimate(m.s);
        struct sim *s = plan_simulate(m.p, k, NULL), *t = plan_simulate(same.p, k, NULL);
        many_are_whole(m.p, n);
        ck_assert(!plan_check(m.p, NULL) && s && t);
        for (int r = 0; r < 3; r++) {                    /* the work is the same */
            ck_assert(fabs(s->rank[r].part[ACC_WEIGHT_GRAD] / t->rank[r].part[ACC_WEIGHT_GRAD] - 1) < 1e-9);
            int kept = m.p->stage[r].in_flight, least = same.p->stage[r].in_flight;
            ck_assert(kept >= least && kept < least + n);   /* they wait for the last that W takes */
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
    struct made m = many_made(rig_schedules[_i], 7, 3);
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

int main(void)
{
    TCase *t = suite_case("check", 120);
    tcase_add_loop_test(t, checker_rejects_mutations, 0, N_SCHEDULES);
    tcase_add_test(t, checker_follows_tied_weights);
    tcase_add_loop_test(t, checker_wants_norms_before_the_update, 0, N_SCHEDULES);
    tcase_add_test(t, checker_wants_all_state);
    tcase_add_test(t, checker_wants_the_whole_batch);
    tcase_add_test(t, checker_wants_all_statistics);
    tcase_add_loop_test(t, checker_wants_all_operands, 0, N_SCHEDULES);
    tcase_add_loop_test(t, w_takes_several, 0, N_SCHEDULES);
    tcase_add_loop_test(t, w_of_several_is_checked, 0, N_SCHEDULES);
    return suite_run("check", CK_FORK, t);
}
