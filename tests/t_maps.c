/* The executor on other maps: W of several micro-batches, several stages per rank, and other orders of ranks: the same
 * bits as one stage. */
#include <string.h>
#include "exec_rig.h"

/* Twenty samples in micro-batches of 3, the last of 2. */
static struct rig twenty(const struct model_case *m, const char *backend)
{
    struct rig q = case_rig(m, backend);
    q.conf = case_conf(m, 1, 20, 3);
    q.evaluate = true;
    return q;
}

/* W of several micro-batches: the gradients have the bits of single ones, on every stage. */
static void many_on(const struct model_case *m, const char *backend)
{
    struct rig q = twenty(m, backend);
    struct rig_result one, r;
    q.evaluate = false;
    case_run(&q, &one);
    for (int i = WAYS_FIRST(m); i < 8; i += WAYS_STEP) {
        struct sched rows;
        q.n_stages = 1 + i % 3;
        q.schedule = rig_schedules[i / 2 % 3];
        q.backward = rig_backwards[i % 3];
        q.recompute = i == 3 || i == 6 ? 0x55 : 0;
        rig_rows_of(&q, 7, i % 4 + 2, &rows);
        q.rows = &rows;
        case_same(&q, &one, &r);
        sched_free(&rows);
    }
}

START_TEST(many) { many_on(ON_BOTH(_i)); }
END_TEST

/* Several stages a rank: as one stage, also what is recomputed or evaluated, and with W of several. */
static void maps_on(const struct model_case *m, const char *backend)
{
    struct rig q = twenty(m, backend);
    struct rig_result one, r;
    case_run(&q, &one);
    for (int i = WAYS_FIRST(m); i < 2 * N_MAPS; i += WAYS_STEP) {
        const struct rig_map *map = &rig_maps[i % N_MAPS];
        struct sched rows;
        q.n_stages = map->stages;
        q.n_ranks = map->ranks;
        q.rank_of = map->rank_of;
        q.schedule = rig_schedules[i / N_MAPS ^ (i & 1)];
        q.backward = rig_backwards[i % 3];
        q.recompute = i % 4 == 1 ? 0x55 : i % 4 == 2 ? 0xff : 0;
        q.delay_us = i % 3 ? 0 : 100;
        q.rows = NULL;
        if (i % 4 == 3) rig_rows_of(&q, 7, 2 + i % 3, &rows);   /* W of several */
        if (i % 4 == 3) q.rows = &rows;
        case_same(&q, &one, &r);
        if (q.rows) sched_free(&rows);
    }
}

START_TEST(maps) { maps_on(ON_BOTH(_i)); }
END_TEST

/* The plan's ranks on other ranks of the transport: in another order with one left over, and two runs of one plan side
 * by side. */
START_TEST(ranks_are_mapped)
{
    static const struct { int copies, n_tp, seat[4]; } all[] = {
        {1, 3, {2, 0}}, {2, 4, {0, 1, 2, 3}}, {2, 4, {3, 1, 0, 2}}, {2, 5, {4, 0, 3, 2}}};
    struct rig q = case_rig(&cases[_i], "reference");
    struct rig_result one, r;
    case_run(&q, &one);
    for (int i = 0; i < 4; i++) {
        q.n_stages = 2;
        q.schedule = rig_schedules[i % 3];
        q.copies = all[i].copies;
        q.n_tp = all[i].n_tp;
        q.seat = all[i].seat;
        case_same(&q, &one, &r);
        for (int k = 0; k < q.copies; k++) ck_assert_str_eq(r.copy_hash[k], one.hash);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("maps", 240);
    tcase_add_loop_test(t, many, 0, N_BOTH);
    tcase_add_loop_test(t, maps, 0, N_BOTH);
    tcase_add_loop_test(t, ranks_are_mapped, 0, 5);
    return suite_run("maps", CK_NOFORK, t);
}
