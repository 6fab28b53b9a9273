/* naive: one micro-batch after the other travels through all stages and back; only one rank works at a time. */
#include "plan/plan.h"
#include "plan/sched.h"

static void naive_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    const int *own = r->map->stages_of[rank], n = r->map->n_stages_of[rank];
    for (int mb = 0; mb < r->n_mb; mb++) {
        for (int i = 0; i < n; i++) sched_push(out, rank, ACT_F, own[i], mb);
        for (int i = n - 1; i >= 0; i--) {
            sched_push(out, rank, ACT_B, own[i], mb);
            sched_push(out, rank, ACT_W, own[i], mb);
        }
    }
}

static int naive_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    for (int rank = 0; rank < r->map->n_ranks; rank++) naive_row_build(r, rank, out);
    return 0;
}

const struct sched_kind sched_naive = {
    .name = "naive", .text = "no pipelining: one micro-batch at a time", .build = naive_build};
