/* Which groups are recomputed in the backward pass instead of kept (pipeline.recompute...). Pure.
 *
 * The marks are per group and belong into plan_request.again; lowering ignores them where nothing would be freed. */
#ifndef PLAN_RECOMPUTE_H
#define PLAN_RECOMPUTE_H
#include "plan/cost.h"
#include "plan/plan.h"

/* What the configuration marks whatever the cut: everything, or what lies below named layers. 78 names a layer that is
 * not there. */
int recompute_named(const struct conf *c, const struct selection *s, bool *recompute, struct err *e);
/* Whole stages. 78 for one that is not there. */
int recompute_stages(const struct conf *c, const struct placement *pl, bool *recompute, struct err *e);
/* recompute = auto: marks blocks, cheapest in time for the memory they free first, until no rank needs more than
 * limit[rank] (UINT64_MAX: any), and no block that need not be. Where nothing helps, all blocks of that rank stay
 * marked: the check of limits tells. */
struct recompute_request {
    const struct selection *sel;
    const struct placement *pl;
    const struct plan_request *plan;                     /* its `again` is not looked at */
    const struct cost *cost;
    const uint64_t *limit;
};
int recompute_auto(const struct recompute_request *q, bool *recompute, struct err *e);
#endif
