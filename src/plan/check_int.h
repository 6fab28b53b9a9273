/* What the checker's files share. Nobody else. */
#ifndef PLAN_CHECK_INT_H
#define PLAN_CHECK_INT_H
#include "plan/plan.h"

/* State and where it lies, and that tied weights stay one. stage_of: of each group. The rows name only stages and
 * channels that there are. 70. */
int check_state(const struct plan *p, const int *stage_of, struct err *e);

/* Gradients: in order within blocks of micro-batches, blocks as a tree. The rows name only what there is. 70. */
int check_sums(const struct plan *p, struct err *e);

/* Sums as hashes: of blocks [first, end) as the tree, 0 where they have no micro-batch; and of two that are added. */
uint64_t check_sum_wanted(const struct plan *p, int first, int end);
uint64_t check_sum_of(uint64_t left, uint64_t right);

#endif
