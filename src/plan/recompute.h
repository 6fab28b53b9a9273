/* Which groups are recomputed in the backward pass instead of kept (pipeline.recompute...). Pure.
 *
 * The marks are per group and go into plan_request.recompute; lowering ignores a mark where it would free nothing. */
#ifndef PLAN_RECOMPUTE_H
#define PLAN_RECOMPUTE_H
#include "plan/cost.h"
#include "plan/plan.h"

/* What the configuration marks for any cut: everything, or the groups below named layers. 78 names an unknown layer. */
int recompute_named(const struct conf *c, const struct selection *s, bool *recompute, struct err *e);
/* Whole stages. 78 for an unknown stage. */
int recompute_stages(const struct conf *c, const struct placement *pl, bool *recompute, struct err *e);
/* recompute = auto: marks blocks until no rank needs more than limit[rank] (UINT64_MAX: any). The block with the least
 * time for the memory it frees comes first; no unneeded block stays marked. If a rank never fits, all its blocks stay
 * marked and the check of limits reports it. */
struct recompute_request {
    const struct selection *sel;
    const struct placement *pl;
    const struct plan_request *plan;                     /* its `recompute` is ignored */
    const struct cost *cost;
    const uint64_t *limit;
};
int recompute_auto(const struct recompute_request *q, bool *recompute, struct err *e);
#endif
