/* forward: evaluation. Every micro-batch once through all stages. */
#include "plan/plan.h"
#include "plan/sched.h"

static int build(int n_stages, int n_ranks, int n_mb, int rank, struct sched *out, struct err *e)
{
    for (int mb = 0; mb < n_mb; mb++)
        for (int s = rank; s < n_stages; s += n_ranks) sched_push(out, rank, ACT_F, s, mb);
    return 0;
}

const struct sched_kind sched_forward = {.name = "forward",
                                         .text = "forward passes only; evaluation runs it, nothing else can choose it",
                                         .eval = true,
                                         .build = build};
