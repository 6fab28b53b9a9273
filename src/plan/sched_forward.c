/* forward: evaluation. Every micro-batch once through all stages. */
#include "plan/plan.h"
#include "plan/sched.h"

static int build(const struct sched_request *r, struct sched *out, struct err *e)
{
    const int *own = r->map->stages_of[r->rank], n = r->map->n_stages_of[r->rank];
    for (int mb = 0; mb < r->n_mb; mb++)
        for (int i = 0; i < n; i++) sched_push(out, r->rank, ACT_F, own[i], mb);
    return 0;
}

const struct sched_kind sched_forward = {.name = "forward",
                                         .text = "forward passes only; evaluation runs it, nothing else can choose it",
                                         .eval = true,
                                         .build = build};
