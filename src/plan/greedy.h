/* Rows made by simulating a step: whenever a rank is free, it takes the pass that can begin first. For schedules that
 * have no formula (zb-v of other shapes) or choose by costs (auto). Forward, a stage waits for the stage before it;
 * backward, for the stage after it. Pure. */
#ifndef PLAN_GREEDY_H
#define PLAN_GREEDY_H
#include "plan/sched.h"

struct greedy_ask {
    const struct stage_map *map;
    int n_mb;
    const struct sched_cost *cost;                       /* of each stage; NULL: F, B and W cost the same */
    /* micro-batches of its stages that a rank keeps at once; at least its number of stages */
    int most;
    double patience;                                     /* W waits if F or B comes within this fraction of its time */
    bool deep;                                           /* of two B, the one of the later stage comes first */
    bool alternate;                                      /* after a B, an F comes first */
};
void greedy_rows(const struct greedy_ask *a, struct sched *out);
/* Time of a step with these rows, simulated with these costs; negative: the rows wait for each other. */
double greedy_time(const struct sched *s, const struct stage_map *map, int n_mb, const struct sched_cost *cost);

#endif
