/* Where a job's network is cut, and what it recomputes. Pure; called by job.c when the selection and the costs are
 * known. */
#ifndef JOB_PARTITION_H
#define JOB_PARTITION_H
#include "job/job.h"
/* Sets j->first_group by the policy, merges stages if there are fewer ranks, and sets j->found to the result of
 * partition auto. 78. */
int partition_stages(struct job *j, struct err *e);
/* Cuts j's network before the layers at which `of` is cut, by their names, for the same ranks. Both have layers of the
 * same names in the same order, but j may lack some. */
int partition_as(struct job *j, const struct job *of);
/* Adds to `recompute`, when the stages are known: pipeline.recompute_stages, and what recompute auto needs under the
 * limits. 78. */
int partition_recompute(const struct job *j, const struct placement *pl, bool *recompute, struct err *e);
#endif
