/* breadth-first (Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv:2211.05953): gpipe over several stages a rank,
 * in turn. All micro-batches go through a stage before the rank's next stage begins. So weights that lie in a file are
 * read once for all of them, forward and backward. */
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_gpipe, sched_breadth_first;

static int breadth_first_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    return sched_map_check(&sched_breadth_first, r->map, e) ? -1 : sched_gpipe.build(r, out, e);
}

const struct sched_kind sched_breadth_first = {
    .name = "breadth-first", .text = "gpipe over several stages a rank, in turn: each reads its weights once",
    .chunks = true, .build = breadth_first_build};
