/* zb-h1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", ZB-H1): the order of 1f1b, but rank r delays W by r
 * micro-batches. So gradients go back first, and W fills the wait at the end. Idle time: (p - 1)(F + B - W), a third of
 * 1f1b's if all three cost the same. In flight: on each rank as many as on 1f1b's first rank. A micro-batch that waits
 * for W also keeps its output gradients, so it takes more bytes. in_flight allows more micro-batches ahead, up to 2p -
 * 1, which is ZB-H2. */
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_zb_h1;

static int least(int a, int b) { return a < b ? a : b; }

/* ahead: forward passes before the first backward pass; late: the number of micro-batches by which W is delayed. */
static void zb_h1_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    int p = r->map->n_ranks, stage = r->map->stages_of[rank][0];
    int most = r->in_flight ? least(r->in_flight, 2 * p - 1) : p, more = most > p ? most - p : 0;
    int ahead = least(p - rank, most) + least(more, p - 1 - rank), late = most - ahead;
    ahead = least(ahead, r->n_mb);
    for (int f = 0; f < ahead; f++) sched_push(out, rank, ACT_F, stage, f);
    for (int b = 0; b < r->n_mb; b++) {
        sched_push(out, rank, ACT_B, stage, b);
        if (b >= late) sched_push(out, rank, ACT_W, stage, b - late);
        if (b + ahead < r->n_mb) sched_push(out, rank, ACT_F, stage, b + ahead);
    }
    for (int w = r->n_mb > late ? r->n_mb - late : 0; w < r->n_mb; w++) sched_push(out, rank, ACT_W, stage, w);
}

static int zb_h1_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    if (sched_map_check(&sched_zb_h1, r->map, e)) return -1;
    for (int rank = 0; rank < r->map->n_ranks; rank++) zb_h1_row_build(r, rank, out);
    return 0;
}

const struct sched_kind sched_zb_h1 = {
    .name = "zb-h1", .text = "1f1b with deferred weight gradients: a third of its bubble",
    .build = zb_h1_build};
