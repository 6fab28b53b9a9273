/* forward: evaluation. Every micro-batch goes once through all stages. */
#include "plan/plan.h"
#include "plan/sched.h"

static void forward_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    const int *own = r->map->stages_of[rank], n = r->map->n_stages_of[rank];
    /* with several stages a rank, enough micro-batches at a time to keep all ranks busy; all, if a stage's weights are
     * read each time */
    const int most = r->in_file ? r->n_mb : n > 1 ? r->map->n_ranks : 1;
    for (int from = 0; from < r->n_mb; from += most)
        for (int i = 0; i < n; i++)
            for (int mb = from; mb < r->n_mb && mb < from + most; mb++) sched_push(out, rank, ACT_F, own[i], mb);
}

static int forward_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    for (int rank = 0; rank < r->map->n_ranks; rank++) forward_row_build(r, rank, out);
    return 0;
}

const struct sched_kind sched_forward = {.name = "forward",
                                         .text = "forward passes only; evaluation runs it, nothing else can choose it",
                                         .eval = true,
                                         .build = forward_build};
