/* The executor under every schedule, on one to four ranks with one to four stages each: the bits of one stage, with an
 * uneven last micro-batch and with recomputation. LONG=1 in the environment: all combinations; otherwise some for each
 * property. */
#include <string.h>
#include "exec_rig.h"
#include "plan/sched.h"

static const struct { int ranks, chunks; } shape[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2},
                                                      {1, 4}, {2, 4}, {4, 4}};
enum { SHAPES = N_OF(shape), WAYS = 2 };

/* False: it is not for such stages. */
static bool way_set(struct rig *q, const struct sched_kind *k, int at, int way, int *rank_of)
{
    int n = shape[at].ranks * shape[at].chunks;
    if (!k->chunks && shape[at].chunks > 1) return false;
    for (int i = 0; i < n; i++) rank_of[i] = sched_rank_of(k, i, shape[at].ranks);
    q->n_stages = n;
    q->n_ranks = shape[at].ranks;
    q->rank_of = rank_of;
    q->schedule = k->name;
    q->backward = rig_backwards[(at + way) % 3];
    q->recompute = way == 1 ? 0x55 : 0;
    q->delay_us = at % 3 == 1 ? 100 : 0;
    return true;
}

static void ways_on(const struct model_case *m, const char *backend, int seed)
{
    struct rig q = case_rig(m, backend);
    struct rig_result one, r;
    int rank_of[16], turn = seed;
    q.conf = case_conf(m, 1, 20, 3);                       /* the last micro-batch has two samples */
    q.evaluate = true;
    case_run(&q, &one);
    for (int k = 0; sched_list[k]; k++)
        for (int i = 0; i < SHAPES * WAYS && !sched_list[k]->eval; i++) {
            bool due = turn++ % cases_of(17, IS_SANITIZED ? 17 : 5, IS_SANITIZED ? 17 : 1) == 0;
            if (shape[i / WAYS].ranks * shape[i / WAYS].chunks > one.n_groups) continue;
            if (due && way_set(&q, sched_list[k], i / WAYS, i % WAYS, rank_of)) case_same(&q, &one, &r);
        }
}

START_TEST(ways) { ways_on(ON_BOTH(_i), _i); }
END_TEST

int main(void)
{
    TCase *t = suite_case("ways", getenv("LONG") ? 1200 : 240);
    tcase_add_loop_test(t, ways, 0, N_BOTH);
    return suite_run("ways", CK_NOFORK, t);
}
