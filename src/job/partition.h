/* Where a job's network is cut, and what is recomputed for it. Pure; called by job.c when the selection and the costs
 * are known. */
#ifndef JOB_PARTITION_H
#define JOB_PARTITION_H
#include "job/job.h"
/* Sets j->first_group by the policy, merges stages where ranks are fewer, and says in j->found what auto found. 78. */
int partition_stages(struct job *j, struct err *e);
/* What is recomputed where the stages are known, beyond what again holds already: pipeline.recompute_stages, and what
 * recompute auto asks for under the limits. 78. */
int partition_recompute(const struct job *j, const struct placement *pl, bool *recompute, struct err *e);
#endif
