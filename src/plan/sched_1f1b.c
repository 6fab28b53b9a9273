/* 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of p keeps at most min(m, p - s) micro-batches in flight. It
 * runs that many forward passes, then one backward and one forward in turn. */
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_1f1b;

static int least(int a, int b) { return a < b ? a : b; }

static void sched_1f1b_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    int stage = r->map->stages_of[rank][0], warm = least(r->map->n_stages - stage, r->n_mb);
    if (r->in_flight) warm = least(warm, r->in_flight);
    for (int f = 0; f < warm; f++) sched_push(out, rank, ACT_F, stage, f);
    for (int b = 0; b < r->n_mb; b++) {
        sched_push(out, rank, ACT_B, stage, b);
        sched_push(out, rank, ACT_W, stage, b);
        if (b + warm < r->n_mb) sched_push(out, rank, ACT_F, stage, b + warm);
    }
}

static int sched_1f1b_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    if (sched_map_check(&sched_1f1b, r->map, e)) return -1;
    for (int rank = 0; rank < r->map->n_ranks; rank++) sched_1f1b_row_build(r, rank, out);
    return 0;
}

const struct sched_kind sched_1f1b = {
    .name = "1f1b", .text = "one forward, one backward: the least memory", .build = sched_1f1b_build};
