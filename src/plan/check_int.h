/* Shared by the checker's files only. */
#ifndef PLAN_CHECK_INT_H
#define PLAN_CHECK_INT_H
#include "plan/plan.h"

/* Checks the registry of state and its places, and that all uses of a tied weight share one row. stage_of: the stage of
 * each group. The rows must name only stages and channels that exist. 70. */
int check_state(const struct plan *p, const int *stage_of, struct err *e);

/* Checks that slot classes in the same memory of a rank are never needed at once. 70. */
int check_memory(const struct plan *p, int rank, struct err *e);

/* Checks the order of gradient sums: ascending within a block, blocks as a tree. The rows must name only what exists.
 * 70. */
int check_sums(const struct plan *p, struct err *e);

/* Sums as hashes. check_sum_wanted: the tree over blocks [first, end); 0 where they have no micro-batch. check_sum_of:
 * the sum of two operands. */
uint64_t check_sum_wanted(const struct plan *p, int first, int end);
uint64_t check_sum_of(uint64_t left, uint64_t right);

#endif
