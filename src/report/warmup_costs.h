/* The costs that the first steps of a run measure: one size, the full micro-batch, as numbers that can be added over
 * ranks (exec/costs.h). Pure; any thread. */
#ifndef REPORT_WARMUP_COSTS_H
#define REPORT_WARMUP_COSTS_H
#include "job/job.h"
#include "plan/cost.h"

enum { WARMUP_FIRST = 2, WARMUP_STEPS = 3 };              /* the first step that is timed; how many are timed */
/* How many numbers a rank reports; 0: this run times nothing. The last three are the number of timed steps, added over
 * ranks, and the first and last timed step of rank 0. */
int warmup_count(const struct job *j);
/* Makes costs for these numbers. The caller owns them. Only if warmup_count is not 0. */
struct cost *warmup_costs(const struct job *j);
#endif
