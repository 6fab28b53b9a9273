/* What the first steps of a run are timed for: costs of one size, the full micro-batch, as numbers that can be added
 * over ranks (exec/costs.h). Pure; any thread. */
#ifndef REPORT_WARMUP_COSTS_H
#define REPORT_WARMUP_COSTS_H
#include "job/job.h"
#include "plan/cost.h"

enum { WARMUP_FIRST = 2, WARMUP_STEPS = 3 };              /* the first step that is timed; how many are */
/* How many numbers a rank reports, 0: nothing is timed in this run. The last three are how many steps were timed, added
 * over ranks, and the first and last of them as rank 0 has them. */
int warmup_count(const struct job *j);
/* Costs for these numbers. The caller owns them. Only if warmup_count is not 0. */
struct cost *warmup_costs(const struct job *j);
#endif
