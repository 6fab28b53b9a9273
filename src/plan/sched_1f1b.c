/* 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of p keeps at most min(m, p - s) micro-batches in flight: that
 * many forward passes, then one backward and one forward in turn. */
#include "plan/plan.h"
#include "plan/sched.h"

static int build(int n_stages, int n_ranks, int n_mb, int rank, struct sched *out, struct err *e)
{
    if (n_stages != n_ranks)
        return err_set(e, E_CONF, "schedule \"1f1b\" wants one stage a rank, not %d stages on %d ranks", n_stages,
                       n_ranks);
    int warm = n_stages - rank < n_mb ? n_stages - rank : n_mb;
    for (int f = 0; f < warm; f++) sched_push(out, rank, ACT_F, rank, f);
    for (int b = 0; b < n_mb; b++) {
        sched_push(out, rank, ACT_B, rank, b);
        sched_push(out, rank, ACT_W, rank, b);
        if (b + warm < n_mb) sched_push(out, rank, ACT_F, rank, b + warm);
    }
    return 0;
}

const struct sched_kind sched_1f1b = {
    .name = "1f1b", .text = "one forward, one backward: the least memory", .build = build};
