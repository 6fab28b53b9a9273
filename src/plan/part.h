/* Shared by partition policies and by those who call them. Pure. */
#ifndef PLAN_PART_H
#define PLAN_PART_H
#include "plan/plan.h"
/* Puts n_stages contiguous stages on n_ranks <= n_stages ranks as evenly as possible: out[n_ranks + 1] group positions. */
void part_merge(const int *first_group, int n_stages, int n_ranks, int *out);
#endif
