/* gpipe (Huang et al. 2019): all forward passes, then all backward passes, both in ascending order (R3). With a limit
 * of micro-batches in flight, that many at a time. */
#include "plan/plan.h"
#include "plan/sched.h"

static void gpipe_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    const int *own = r->map->stages_of[rank], n = r->map->n_stages_of[rank];
    const int most = r->in_flight ? r->in_flight : r->n_mb;
    for (int from = 0; from < r->n_mb; from += most) {
        const int end = r->n_mb - from < most ? r->n_mb : from + most;
        for (int i = 0; i < n; i++)
            for (int mb = from; mb < end; mb++) sched_push(out, rank, ACT_F, own[i], mb);
        for (int i = n - 1; i >= 0; i--)
            for (int mb = from; mb < end; mb++) {
                sched_push(out, rank, ACT_B, own[i], mb);
                sched_push(out, rank, ACT_W, own[i], mb);
            }
    }
}

static int gpipe_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    for (int rank = 0; rank < r->map->n_ranks; rank++) gpipe_row_build(r, rank, out);
    return 0;
}

const struct sched_kind sched_gpipe = {
    .name = "gpipe", .text = "all forward passes, then all backward passes", .build = gpipe_build};
