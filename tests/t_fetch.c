/* Weights that lie in a file: a plan with slots for them, each mistake in it, and its time. A rank has 6 stages and 2
 * slots, all layers but the first are frozen. Then the same for optimizer state, and for trained weights. */
#include <check.h>
#include <math.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "sure.h"

enum { STAGES = 6, LAYERS = 6 };

static struct graph *frozen_chain(void)
{
    struct text t = {0};
    text_add(&t, "graph chain\ninput input 4\nlabels labels class\n");
    for (int i = 0; i < LAYERS; i++) {
        text_add(&t, "l%d = linear(", i);
        if (i) text_add(&t, "l%d) features=4 layer=Linear\n", i - 1);
        else text_add(&t, "input) features=4 layer=Linear\n");
        if (i) text_add(&t, "freeze l%d\n", i);
    }
    text_add(&t, "loss = mse(l%d, labels)\nloss loss\noutput l%d\n", LAYERS - 1, LAYERS - 1);
    struct graph *g = rig_graph(t.s);
    text_free(&t);
    return g;
}

static struct made fetch_made(enum plan_mode mode)
{
    static const int on[STAGES];
    static const bool in_file[STAGES] = {true, true, true, true, true, true};
    struct plan_request r = rig_request(mode == PLAN_TRAIN ? "breadth-first" : "forward", 6, 2, BACKWARD_AUTO);
    r.mode = mode;
    struct made m = made_cut((struct placement_request){.n_stages = STAGES, .mesh = {{1}}, .rank_of = on,
                                                        .in_file = in_file, .slots = 2},
                             frozen_chain(), &rig_plain, r);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    return m;
}

/* Its trained layer leaves stage 0 nothing in a file. */
START_TEST(weights_lie_in_slots)
{
    struct made m = fetch_made(PLAN_TRAIN);
    const struct placement *pl = m.pl;
    size_t most = 0;
    ck_assert_int_eq(pl->slot_of[0], -1);
    for (int s = 1; s < STAGES; s++) {
        ck_assert_int_eq(pl->slot_of[s], s % 2);
        most = pl->slot_used[s] > most ? pl->slot_used[s] : most;
    }
    ck_assert_uint_eq(pl->slots[0].bytes, most);
    ck_assert_uint_eq(pl->slots[0].at + 2 * most, pl->param_bytes[0]);
    made_free(&m);
}
END_TEST

/* Forward and backward, each stage is read once for all micro-batches; where the row turns, both slots have what is
 * needed. An evaluation ends with the first stages of the next one. */
START_TEST(each_stage_is_read_once_a_pass)
{
    for (int mode = PLAN_TRAIN; mode <= PLAN_EVAL; mode++) {
        struct made m = fetch_made((enum plan_mode)mode);
        int loads[STAGES] = {0}, gives = 0;
        for (int i = 0; i < m.p->row_n[0]; i++) {
            const struct act *a = &m.p->row[0][i];
            loads[a->stage] += a->op == ACT_LW;
            gives += a->op == ACT_EW;
        }
        for (int s = 1; s < STAGES; s++) {
            const int want = mode == PLAN_EVAL ? 1 + (s <= 2) : s >= STAGES - 2 ? 1 : 2;
            sure(loads[s] == want, "mode %d: stage %d is loaded %d times", mode, s, loads[s]);
        }
        ck_assert_int_gt(gives, 0);
        made_free(&m);
    }
}
END_TEST

/* Any action of these left out, changed to another stage or moved before what it follows. */
START_TEST(checker_follows_slots)
{
    struct made m = fetch_made(_i ? PLAN_EVAL : PLAN_TRAIN);
    struct act *row = m.p->row[0];
    int n = m.p->row_n[0], tried = 0;
    for (int i = 0; i < n; i++) {
        if (row[i].op != ACT_LW && row[i].op != ACT_EW) continue;
        const struct act was = row[i];
        row[i].stage = (uint16_t)(was.stage % (STAGES - 1) + 1);
        sure(plan_check(m.p, NULL), "action %d of another stage passes", i);
        row[i] = was;
        if (i && row[i].op == ACT_EW) {                   /* before the last program that reads them */
            row[i] = row[i - 1], row[i - 1] = was;
            sure(plan_check(m.p, NULL), "action %d passes before its program", i);
            row[i - 1] = row[i], row[i] = was;
        }
        bool used = false;
        for (int k = i + 1; k < n; k++) used |= row[k].stage == was.stage && row[k].op <= ACT_R && row[k].op >= ACT_F;
        if (used && row[i].op == ACT_LW) {
            memmove(row + i, row + i + 1, (size_t)(n - i - 1) * sizeof *row);
            m.p->row_n[0]--;
            sure(plan_check(m.p, NULL), "without action %d it passes", i);
            m.p->row_n[0]++;
            memmove(row + i + 1, row + i, (size_t)(n - i - 1) * sizeof *row);
            row[i] = was;
        }
        tried++;
    }
    ck_assert_int_gt(tried, 6);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

START_TEST(checker_wants_rows_in_their_slots)
{
    struct made m = fetch_made(PLAN_TRAIN);
    for (int i = 0; i < m.pl->n_state; i++) {
        struct state_row *r = &m.pl->state[i];
        if (r->home != HOME_FILE) continue;
        const size_t was = r->off[0], wrong[] = {0, m.pl->slots[0].at - 64, was + m.pl->slots[0].bytes, STATE_NOWHERE};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            r->off[0] = wrong[k];
            sure(plan_check(m.p, NULL), "%s at %zu passes", r->name, wrong[k]);
        }
        r->off[0] = was;
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* Slots of values that share memory: no two may be needed at once. */
START_TEST(checker_follows_memory)
{
    struct made m = fetch_made(PLAN_TRAIN);
    int shared = 0, wrong = 0;
    for (int a = 0; a < m.p->n_cls; a++)
        for (int b = 0; b < a; b++) {
            const size_t was = m.p->cls[a].base;
            shared += m.p->cls[b].base == was;
            m.p->cls[a].base = m.p->cls[b].base;
            wrong += plan_check(m.p, NULL) != 0;
            m.p->cls[a].base = was;
        }
    ck_assert_int_gt(shared, 0);
    ck_assert_int_gt(wrong, shared);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* On a fast disk all reading hides behind the programs; on a slow one a step takes as long as reading. */
START_TEST(time_is_that_of_programs_or_disk)
{
    struct made m = fetch_made(PLAN_TRAIN);
    struct cost *k = cost_estimate(m.s);
    k->disk_ns_per_byte = 0;
    struct sim *none = plan_simulate(m.p, k, NULL);
    ck_assert_uint_gt(none->rank[0].fetched, 0);
    k->disk_ns_per_byte = 1e-6;
    struct sim *fast = plan_simulate(m.p, k, NULL);
    ck_assert(fast->wall_ns < none->wall_ns * 1.01);
    k->disk_ns_per_byte = 1e6;
    struct sim *slow = plan_simulate(m.p, k, NULL);
    const double reads = 1e6 * (double)slow->rank[0].fetched;
    ck_assert(slow->wall_ns >= reads && slow->wall_ns < 1.01 * reads + none->wall_ns);
    ck_assert(fabs(slow->rank[0].part[ACC_FETCH] - (slow->wall_ns - none->wall_ns)) < 0.01 * reads);
    sim_free(none); sim_free(fast); sim_free(slow);
    cost_free(k);
    made_free(&m);
}
END_TEST

/* ---- optimizer state -------------------------------------------------------------------------------------------- */

/* Three weights of 40000, 40 and 160000 elements or so, on one rank or two, with two buffers each. */
static struct made offload_made(int ranks, bool whole)
{
    struct placement_request q = {.n_stages = ranks, .mesh = {{ranks}}};
    q.buffers = rig_buffers(2);
    q.buffers.in_file = true;
    q.buffers.whole = whole;
    struct graph *g = rig_graph("graph net\ninput input 4\nlabels labels class\n"
                                "a = linear(input) features=10000 layer=Linear\n"
                                "b = linear(a) features=4 layer=Linear\n"
                                "c = linear(b) features=40000 layer=Linear\n"
                                "d = linear(c) features=4 layer=Linear\n"
                                "loss = mse(d, labels)\nloss loss\noutput d\n");
    struct made m = made_cut(q, g, &rig_plain, rig_request("gpipe", 6, 2, BACKWARD_AUTO));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    return m;
}

/* A rank's memory has a few parts of its state; the file has all of it. */
START_TEST(state_lies_in_chunks)
{
    const bool whole = _i;
    struct made m = offload_made(2, whole);
    for (int rank = 0; rank < 2; rank++) {
        const struct state_file *f = &m.pl->state_file[rank];
        uint64_t all = 0, largest = 0;
        for (int i = 0; i < m.pl->n_state; i++) {
            const struct state_row *r = &m.pl->state[i];
            if (r->kind != STATE_OPTIMIZER || r->owner != rank) continue;
            all += r->bytes;
            largest = 2 * r->bytes > largest ? 2 * r->bytes : largest;
        }
        ck_assert_uint_eq(f->all, all);
        ck_assert_uint_eq(m.pl->state_bytes[rank], (size_t)f->n * f->bytes);
        if (whole) ck_assert_uint_eq(f->bytes, largest);
        else ck_assert_uint_le(f->bytes, (uint64_t)2 * sizeof(float) * f->block);
        ck_assert_int_eq(f->n, f->n_chunks < 3 ? f->n_chunks : 3);
    }
    made_free(&m);
}
END_TEST

/* Each number of the file's description, changed. */
START_TEST(checker_wants_all_state_in_chunks)
{
    struct made m = offload_made(1, _i);
    struct state_file *f = &m.pl->state_file[0];
    for (int i = 0; i < f->n_chunks; i++) {
        struct state_chunk *c = &f->chunk[i];
        const struct state_chunk was = *c;
        const struct state_chunk wrong[] = {
            {was.at + 64, was.bytes, was.param, was.from}, {was.at, was.bytes + 64, was.param, was.from},
            {was.at, was.bytes - 64, was.param, was.from}, {was.at, was.bytes, was.param + 1, was.from},
            {was.at, was.bytes, was.param, was.from + 16},
        };
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            *c = wrong[k];
            sure(plan_check(m.p, NULL), "chunk %d passes with mistake %zu", i, k);
        }
        *c = was;
    }
    const struct state_file was = *f;
    struct state_file wrong[6];
    for (int k = 0; k < 6; k++) wrong[k] = was;
    wrong[0].n = 0;
    wrong[1].n++;
    wrong[2].at += 64;
    wrong[3].bytes -= 64;
    wrong[4].all += 64;
    wrong[5].n_chunks--;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        *f = wrong[k];
        sure(plan_check(m.p, NULL), "a file with mistake %zu passes", k);
    }
    *f = was;
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

START_TEST(checker_wants_rows_in_the_file)
{
    struct made m = offload_made(2, false);
    for (int i = 0; i < m.pl->n_state; i++) {
        struct state_row *r = &m.pl->state[i];
        if (r->kind != STATE_OPTIMIZER) continue;
        const size_t was = r->off[r->owner], wrong[] = {was + 64, was + r->bytes, STATE_NOWHERE};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            r->off[r->owner] = wrong[k];
            sure(plan_check(m.p, NULL), "%s at %zu passes", r->name, wrong[k]);
        }
        r->off[r->owner] = was;
        r->home = HOME_DEVICE;
        sure(plan_check(m.p, NULL), "%s in memory passes", r->name);
        r->home = HOME_FILE;
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* An update takes as long as its computation, or as moving the state twice, and some time more for both ends:
 * the first part comes alone, and the last one goes alone. */
START_TEST(update_takes_the_longer_time)
{
    struct made m = offload_made(1, false);
    const struct state_file *f = &m.pl->state_file[0];
    struct cost *k = cost_estimate(m.s);
    double wall[3];
    for (int i = 0; i < 3; i++) {
        k->disk_ns_per_byte = (double[]){0, 1e-3, 1e4}[i];
        struct sim *s = plan_simulate(m.p, k, NULL);
        ck_assert_uint_eq(s->rank[0].moved, 2 * f->all);
        wall[i] = s->wall_ns;
        sim_free(s);
    }
    const double ends = 2 * (double)f->bytes, all = 2 * (double)f->all;
    ck_assert_double_eq_tol(wall[1] - wall[0], 1e-3 * ends, 1e-3);
    ck_assert(wall[2] >= 1e4 * all && wall[2] <= 1e4 * all + wall[0]);
    cost_free(k);
    made_free(&m);
}
END_TEST

/* ---- trained weights --------------------------------------------------------------------------------------------- */

/* Of 6 stages, all in files; _i: micro-batches that are kept, of 3. */
static struct made trained_made(int in_flight)
{
    static const int on[STAGES];
    static const bool in_file[STAGES] = {true, true, true, true, true, true};
    struct placement_request q = {.n_stages = STAGES, .mesh = {{1}}, .rank_of = on, .in_file = in_file, .slots = 2,
                                  .trained_in_file = true, .buffers = rig_buffers(2)};
    struct plan_request r = rig_request("breadth-first", 6, 2, BACKWARD_AUTO);
    r.in_flight = in_flight;
    q.buffers.in_file = true;
    struct made m = made_cut(q, rig_chain(LAYERS), &rig_plain, r);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    return m;
}

/* Each backward visit leaves its gradients in the file, and each one but the first takes them from there. After the
 * update both slots get the weights that the next step begins with. */
START_TEST(gradients_come_and_go)
{
    const int kept = _i;
    struct made m = trained_made(kept);
    const int visits = (3 + kept - 1) / kept, n = m.p->row_n[0];
    int takes[STAGES] = {0}, leaves[STAGES] = {0}, update = 0;
    ck_assert_uint_eq(m.pl->state_file[0].beside, 6 * m.pl->state[0].bytes + 6 * m.pl->state[1].bytes);
    for (int i = 0; i < n; i++) {
        const struct act *a = &m.p->row[0][i];
        takes[a->stage] += a->op == ACT_LW && a->flags & ACT_GRADS;
        leaves[a->stage] += a->op == ACT_EW && a->flags & ACT_GRADS;
        if (a->op == ACT_O) update = i;
    }
    for (int s = 0; s < STAGES; s++) {
        ck_assert_int_eq(leaves[s], visits);
        ck_assert_int_eq(takes[s], visits - 1);
    }
    ck_assert_int_eq(n, update + 3);
    ck_assert(m.p->row[0][n - 1].op == ACT_LW && m.p->row[0][n - 2].op == ACT_LW);
    made_free(&m);
}
END_TEST

START_TEST(checker_follows_gradients)
{
    struct made m = trained_made(_i);
    struct act *row = m.p->row[0];
    const int n = m.p->row_n[0];
    for (int i = 0; i < n; i++) {
        if ((row[i].op != ACT_LW || i > n - 3) && row[i].op != ACT_EW) continue;
        row[i].flags ^= ACT_GRADS;
        sure(plan_check(m.p, NULL), "action %d with and without gradients passes", i);
        row[i].flags ^= ACT_GRADS;
    }
    const struct act late = row[n - 2];
    row[n - 2] = row[n - 3], row[n - 3] = late;
    sure(plan_check(m.p, NULL), "weights that are read before the update pass");
    row[n - 3] = row[n - 2], row[n - 2] = late;
    for (int i = 0; i < m.g->n_params; i++) {
        size_t *at = &m.pl->use_off[0][m.pl->use_first[i]];
        const size_t was = *at, wrong[] = {was + m.pl->slots[0].grad_bytes, STATE_NOWHERE, was - 64};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            *at = wrong[k];
            sure(plan_check(m.p, NULL), "the gradient of %s at %zu passes", m.pl->state[i].name, wrong[k]);
        }
        *at = was;
    }
    m.pl->state_file[0].beside -= 64;
    sure(plan_check(m.p, NULL), "fewer weights in files pass");
    m.pl->state_file[0].beside += 64;
    m.pl->slots[0].grad_at += 64;
    sure(plan_check(m.p, NULL), "slots beyond memory pass");
    m.pl->slots[0].grad_at -= 64;
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("fetch", 60);
    tcase_add_test(t, weights_lie_in_slots);
    tcase_add_test(t, each_stage_is_read_once_a_pass);
    tcase_add_loop_test(t, checker_follows_slots, 0, 2);
    tcase_add_test(t, checker_wants_rows_in_their_slots);
    tcase_add_test(t, checker_follows_memory);
    tcase_add_test(t, time_is_that_of_programs_or_disk);
    tcase_add_loop_test(t, state_lies_in_chunks, 0, 2);
    tcase_add_loop_test(t, checker_wants_all_state_in_chunks, 0, 2);
    tcase_add_test(t, checker_wants_rows_in_the_file);
    tcase_add_test(t, update_takes_the_longer_time);
    tcase_add_loop_test(t, gradients_come_and_go, 1, 4);
    tcase_add_loop_test(t, checker_follows_gradients, 1, 4);
    return suite_run("fetch", CK_FORK, t);
}
