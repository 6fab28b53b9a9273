/* The numbers that the timed first steps of a run report. */
#include "report/warmup_costs.h"
#include "exec/costs.h"

static const struct plan *full(const struct job *j)
{
    return j->plan_of[PLAN_FULL] >= 0 ? j->plan[j->plan_of[PLAN_FULL]] : NULL;
}

struct cost *warmup_costs(const struct job *j)
{
    struct cost *k = cost_new("measured", j->sel->n_groups, 1);
    k->size[0] = full(j)->mb_n[0];
    return k;
}

int warmup_count(const struct job *j)
{
    if (j->be->stream || !full(j) || job_steps(j) < WARMUP_FIRST) return 0;
    struct cost *k = warmup_costs(j);
    int n = costs_count(k) + 3;
    cost_free(k);
    return n;
}
