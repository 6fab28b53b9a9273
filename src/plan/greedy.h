/* Rows by playing a step through: whenever a rank is free it takes the pass that can begin first. For schedules that
 * have no formula (zb-v of other shapes) or choose by costs (auto). A stage waits for the one before it, and on the way
 * back for the one behind it. Pure. */
#ifndef PLAN_GREEDY_H
#define PLAN_GREEDY_H
#include "plan/sched.h"

struct greedy_ask {
    const struct stage_map *map;
    int n_mb;
    const struct sched_cost *cost;                       /* of each stage; NULL: F, B and W cost the same */
    /* micro-batches of stages that a rank keeps at once; at least its number of stages */
    int most;
    double patience;                                     /* W waits where F or B comes within this part of its time */
    bool deep;                                           /* of two B that of the later stage comes first */
    bool alternate;                                      /* after a B a F comes first */
};
void greedy_rows(const struct greedy_ask *a, struct sched *out);
/* Of a step with these rows, played through with these costs; negative: they wait for each other. */
double greedy_time(const struct sched *s, const struct stage_map *map, int n_mb, const struct sched_cost *cost);

#endif
