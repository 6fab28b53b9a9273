/* 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of p keeps at most min(m, p - s) micro-batches in flight: that
 * many forward passes, then one backward and one forward in turn. */
#include "plan/plan.h"
#include "plan/sched.h"

static int least(int a, int b) { return a < b ? a : b; }

static int build(const struct sched_request *r, struct sched *out, struct err *e)
{
    int stage = r->map->stages_of[r->rank][0], n_stages = r->map->n_stages;
    if (n_stages != r->map->n_ranks)
        return err_set(e, E_CONF, "schedule \"1f1b\" wants one stage a rank, not %d stages on %d ranks", n_stages,
                       r->map->n_ranks);
    int warm = least(n_stages - stage, r->n_mb);
    if (r->in_flight) warm = least(warm, r->in_flight);
    for (int f = 0; f < warm; f++) sched_push(out, r->rank, ACT_F, stage, f);
    for (int b = 0; b < r->n_mb; b++) {
        sched_push(out, r->rank, ACT_B, stage, b);
        sched_push(out, r->rank, ACT_W, stage, b);
        if (b + warm < r->n_mb) sched_push(out, r->rank, ACT_F, stage, b + warm);
    }
    return 0;
}

const struct sched_kind sched_1f1b = {
    .name = "1f1b", .text = "one forward, one backward: the least memory", .build = build};
