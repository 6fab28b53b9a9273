/* Weights that replicas shard (pipeline.shard_optimizer): which replica has what, and what the checker finds.
 * tests/t_reduction_tree.c and tests/replicas.sh test that the bits are those of one pipeline. And gradients that the
 * transport adds (pipeline.reduce): the checker knows when they are complete. */
#include <string.h>
#include "plan/cost.h"
#include "plan/sched.h"
#include "plan/sim.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

static const struct way { const char *schedule; int stages, ranks; } ways[] = {
    {"gpipe", 3, 3}, {"1f1b", 3, 3}, {"zb-h1", 3, 3}, {"interleaved", 4, 2}, {"zb-v", 4, 2},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* A bucket for each weight. */
static const struct sharing apart = {.bucket = 1, .weights = true};

static struct placement_request way_place(int way)
{
    static int rank_of[4];
    const struct way *w = &ways[way];
    for (int i = 0; i < w->stages; i++) rank_of[i] = sched_rank_of(sched_find(w->schedule), i, w->ranks);
    return (struct placement_request){
        .n_stages = w->stages, .mesh = {{w->ranks}}, .rank_of = rank_of, .sharing = apart};
}

/* Each rank has its own coordinates, and each shard one of the ranks along its axis, or all. */
START_TEST(ranks_of_a_mesh)
{
    const struct mesh m = {{[AXIS_PP] = 3, [AXIS_DP] = 4}};
    ck_assert_int_eq(mesh_ranks(&m), 12);
    for (int rank = 0; rank < 12; rank++) {
        struct mesh_coord c = mesh_coord_of(&m, rank);
        ck_assert(mesh_rank(&m, c) == rank && c.at[AXIS_PP] < 3 && c.at[AXIS_DP] < 4);
        ck_assert((rank < 3) == (c.at[AXIS_DP] == 0));   /* those of the first pipeline come first */
        for (int at = SHARD_ALL; at < 4; at++)
            ck_assert(shard_has((struct shard){AXIS_DP, at}, c) == (at == SHARD_ALL || at == rank / 3));
    }
}
END_TEST

/* Bytes of rows of a kind that a replica's rank has; all of what has a place there, or what it speaks for. */
static size_t row_bytes(const struct placement *pl, enum state_kind kind, int replica)
{
    size_t bytes = 0;
    for (int i = 0; i < pl->n_state; i++)
        if (pl->state[i].kind == kind && pl->state[i].trained && pl->state[i].shard.at == replica)
            bytes += pl->state[i].bytes;
    return bytes;
}

/* Each weight belongs to one replica, with its buffers; what a rank keeps for the optimizer falls to the largest share,
 * which no border of weights would make smaller by more than a weight for each halving; and of each bucket both halves
 * go on, unless it is one weight. */
START_TEST(weights_are_shared_out)
{
    struct plan_request q = rig_request("1f1b", 16, 1, BACKWARD_AUTO);
    q.groups = 8;
    size_t alone = 0, weight = 4 * 4 * sizeof(float);   /* of rig_chain; biases are smaller */
    for (int n = 1; n <= 8; n *= 2)
        for (int how = 0; how < 2; how++) {
            struct placement_request where = {.n_stages = 1, .mesh = {{1, n}},
                                              .sharing = {.bucket = how ? 300 : 0, .weights = true}};
            struct made m = made_cut(where, rig_chain(32), &rig_plain, q);
            ck_assert_msg(m.p != NULL, "%s", m.e.text);
            size_t most = 0, all = 0;
            for (int r = 0; r < n; r++) {
                size_t bytes = row_bytes(m.pl, STATE_OPTIMIZER, r);
                ck_assert_uint_eq(bytes, row_bytes(m.pl, STATE_WEIGHT, r));
                if (bytes > most) most = bytes;
                all += bytes;
            }
            if (n == 1) alone = all;
            ck_assert_uint_eq(all, alone);
            ck_assert_uint_eq(m.pl->state_bytes[0], most);
            ck_assert_uint_eq(m.pl->update_bytes[0], most);
            ck_assert_uint_le(most, alone / (size_t)n + 3 * weight);
            struct cost *k = cost_estimate(m.s);          /* an update that is most of a step */
            k->optimizer_ns_per_byte = 1000;
            k->bytes_per_ns = 1e9;
            struct sim *sim = plan_simulate(m.p, k, &m.e);
            ck_assert_msg(sim != NULL, "%s", m.e.text);
            sure(plan_bound(m.p, k) <= sim->wall_ns * (1 + 1e-9), "%d replicas: beats its bound", n);
            sim_free(sim);
            cost_free(k);
            made_free(&m);
        }
}
END_TEST

/* Who has to wait for a weight, who owns it, and that it goes on: one thing wrong is found. */
START_TEST(wrong_shares_are_found)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_AUTO);
    struct control x;
    int sends = 0, owned = 0;
    q.groups = 4;
    side_make(&x, way_place(_i), rig_skip, 4, q);
    ck_assert(!plan_check_dp(x.p, NULL));
    for (int r = 0; r < ways[_i].ranks; r++) {
        struct act *row = x.p[1]->row[r];
        int n = x.p[1]->row_n[r], update = 0;
        while (row[update].op != ACT_O) update++;
        for (int i = update + 1; i < n; i++) {
            if (row[i].op != ACT_SW && row[i].op != ACT_RW) continue;
            struct act post = row[i];
            memmove(row + update + 1, row + update, (size_t)(i - update) * sizeof *row);
            row[update] = post;                          /* before the update, which is too early for what it sends */
            sure((plan_check(x.p[1], NULL) != 0) == (post.op == ACT_SW), "rank %d, action %d: early", r, i);
            memmove(row + update, row + update + 1, (size_t)(i - update) * sizeof *row);
            memmove(row + i, row + i + 1, (size_t)(n - i - 1) * sizeof *row);
            x.p[1]->row_n[r]--;
            sure(plan_check_dp(x.p, NULL), "rank %d, action %d: left out", r, i);
            x.p[1]->row_n[r]++;
            memmove(row + i + 1, row + i, (size_t)(n - i - 1) * sizeof *row);
            row[i] = post;
            sends++;
        }
    }
    for (int i = 0; i < x.m[0].g->n_params; i++) {
        for (int r = 0; r < 4; r++) x.m[r].pl->state[i].shard.at ^= 1;
        sure(plan_check_dp(x.p, NULL), "%s is another replica's", x.m[0].pl->state[i].name);
        for (int r = 0; r < 4; r++) x.m[r].pl->state[i].shard.at ^= 1;
        struct state_row *beside = &x.m[1].pl->state[x.m[1].g->n_params + i];   /* all are trained, one buffer each */
        beside->shard.at ^= 1;
        sure(plan_check(x.p[1], NULL), "%s is another replica's", beside->name);
        beside->shard.at ^= 1;
        owned++;
    }
    for (int c = 0; c < x.p[0]->n_chan; c++) {
        if (x.p[0]->chan[c].kind != CHAN_WEIGHT) continue;
        for (int r = 0; r < 4; r++) x.p[r]->chan[c].bytes_per_sample -= 32;
        sure(plan_check_dp(x.p, NULL), "channel %d has a part of a weight", c);
        for (int r = 0; r < 4; r++) x.p[r]->chan[c].bytes_per_sample += 32;
    }
    ck_assert_int_gt(sends, 0);
    ck_assert_int_gt(owned, 0);
    ck_assert(!plan_check_dp(x.p, NULL));
    control_free(&x);
}
END_TEST

/* A tied weight goes to the other ranks of its replica when it has come from the replica that updates it. */
START_TEST(tied_copies_wait_for_weights)
{
    struct plan_request q = rig_request("1f1b", 13, 2, BACKWARD_AUTO);
    struct control x;
    int found = 0;
    q.groups = 2;
    side_make(&x, (struct placement_request){.n_stages = 3, .mesh = {{3}}, .sharing = apart}, rig_tied, 2, q);
    struct plan **p = x.p;
    ck_assert(!plan_check_dp(p, NULL));
    for (int r = 0; r < 6; r++) {
        struct act *row = p[r / 3]->row[r % 3];
        int update = 0, send = 0;
        while (row[update].op != ACT_O) update++;
        while (send < p[r / 3]->row_n[r % 3] && row[send].op != ACT_SU) send++;
        if (send == p[r / 3]->row_n[r % 3]) continue;
        bool mine = x.m[0].pl->state[p[0]->chan[row[send].chan].param].shard.at == r / 3;
        struct act post = row[send];
        memmove(row + update + 2, row + update + 1, (size_t)(send - update - 1) * sizeof *row);
        row[update + 1] = post;
        sure((plan_check_dp(p, NULL) != 0) == !mine, "replica %d", r / 3);
        memmove(row + update + 1, row + update + 2, (size_t)(send - update - 1) * sizeof *row);
        row[send] = post;
        found++;
    }
    ck_assert_int_eq(found, 2);
    control_free(&x);
}
END_TEST

static void act_move(struct act *row, int from, int to)
{
    struct act a = row[from];
    if (from < to) memmove(row + from, row + from + 1, (size_t)(to - from) * sizeof *row);
    else memmove(row + to + 1, row + to, (size_t)(from - to) * sizeof *row);
    row[to] = a;
}

/* In the row of rank 0, the first one; -1: there is none. */
static int act_find(const struct plan *p, int op)
{
    for (int i = 0; i < p->row_n[0]; i++) if (p->row[0][i].op == op) return i;
    return -1;
}

/* What is lent is given back in the order in which it came: gradients of a bucket are not added before those of another
 * that came first from the same replica. */
START_TEST(loans_come_back)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_AUTO);
    struct placement_request where = way_place(_i);
    struct control x;
    struct err e = {0};
    where.sharing.weights = false;
    q.groups = 2;
    side_make(&x, where, rig_skip, 2, q);
    ck_assert(!plan_check_dp(x.p, NULL));
    struct act *row = x.p[0]->row[0];
    int first = act_find(x.p[0], ACT_G), second = first + 1, norms = act_find(x.p[0], ACT_N);
    while (second < norms && row[second].op != ACT_G) second++;
    ck_assert(0 <= first && second < norms);
    struct act a = row[first];
    row[first] = row[second], row[second] = a;
    e = (struct err){0};
    sure(plan_check_dp(x.p, &e) && strstr(e.text, "something else came first"), "in another order: \"%s\"",
         e.text);
    a = row[first], row[first] = row[second], row[second] = a;
    ck_assert(!plan_check_dp(x.p, NULL));
    control_free(&x);
}
END_TEST

/* Each replica gives all its gradients once, when they are final, in the order of the others, and before it uses them.
 */
START_TEST(wrong_totals_are_found)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_AUTO);
    struct placement_request where = way_place(_i);
    struct control x;
    int n_totals = 0, swapped = 0;
    q.groups = 4;
    where.sharing = (struct sharing){.bucket = 1, .by_transport = true};
    side_make(&x, where, rig_skip, 4, q);
    ck_assert(!plan_check_dp(x.p, NULL));
    for (int r = 0; r < ways[_i].ranks; r++) {
        struct act *row = x.p[1]->row[r];
        int n = x.p[1]->row_n[r], norm = 0, before = -1;
        while (row[norm].op != ACT_N) norm++;
        for (int i = 0; i < n; i++) {
            ck_assert(row[i].op != ACT_SG && row[i].op != ACT_G && row[i].op != ACT_SM);
            if (row[i].op != ACT_X) continue;
            ck_assert_int_lt(i, norm);
            act_move(row, i, norm);
            sure(plan_check(x.p[1], NULL), "rank %d, action %d: behind the norms", r, i);
            act_move(row, norm, i);
            act_move(row, i, 0);
            sure(plan_check_dp(x.p, NULL), "rank %d, action %d: before there are gradients", r, i);
            act_move(row, 0, i);
            act_move(row, i, n - 1);
            x.p[1]->row_n[r]--;
            sure(plan_check_dp(x.p, NULL), "rank %d, action %d: left out", r, i);
            x.p[1]->row_n[r]++;
            act_move(row, n - 1, i);
            if (before >= 0) {
                int chan = row[i].chan;
                row[i].chan = row[before].chan, row[before].chan = chan;
                sure(plan_check_dp(x.p, NULL), "rank %d, action %d: in another order", r, i);
                row[before].chan = row[i].chan, row[i].chan = chan;
                swapped++;
            }
            before = i;
            n_totals++;
        }
    }
    for (int c = 0; c < x.p[0]->n_chan; c++) {
        if (x.p[0]->chan[c].kind != CHAN_ALL) continue;
        for (int r = 0; r < 4; r++) x.p[r]->chan[c].bytes_per_sample -= 16;
        sure(plan_check_dp(x.p, NULL), "channel %d lacks a part of a gradient", c);
        for (int r = 0; r < 4; r++) x.p[r]->chan[c].bytes_per_sample += 16;
    }
    ck_assert_int_gt(n_totals, ways[_i].ranks);
    ck_assert_int_gt(swapped, 0);
    ck_assert(!plan_check_dp(x.p, NULL));
    control_free(&x);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("shares", 120);
    tcase_add_test(t, ranks_of_a_mesh);
    tcase_add_test(t, weights_are_shared_out);
    tcase_add_loop_test(t, wrong_shares_are_found, 0, N_WAYS);
    tcase_add_loop_test(t, loans_come_back, 0, N_WAYS);
    tcase_add_test(t, tied_copies_wait_for_weights);
    tcase_add_loop_test(t, wrong_totals_are_found, 0, N_WAYS);
    return suite_run("shares", CK_FORK, t);
}
