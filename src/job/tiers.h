/* Frozen weights beyond a rank's memory lie in files of pipeline.disk; those of a GPU in the host's memory first
 * (plan/placement.h). Which, and in how many stages. The optimizer's state may lie there, too. Pure, as job.h. */
#ifndef JOB_TIERS_H
#define JOB_TIERS_H
#include "job/job.h"

enum { TIER_SLOTS = 2 };                                  /* one is read while the other is used */
/* May weights lie outside, and does the plan exceed the memory of a rank or of its host? */
bool tiers_needed(const struct job *j);
uint64_t tiers_host(const struct job *j);                 /* pipeline.host_memory; 0 on CPUs */
uint64_t tiers_outside(const struct job *j);              /* bytes outside, of all ranks of a pipeline */
/* After planning: 78 if the host's memory is too small for what lies outside, and there is no pipeline.disk. */
int tiers_check(const struct job *j, struct err *e);
/* What of that which is trained must lie in files, and may. 78 if it must, but may not. */
int offload_range(const struct job *j, enum offloads *least, enum offloads *most, struct err *e);
/* Bytes of each rank of a pipeline. free(); NULL: 78. */
uint64_t *tiers_limits(const struct job *j, struct err *e);
bool tiers_fit(const struct job *j, const uint64_t *limit);   /* does each rank's largest plan? */
/* Stages for a plan with files: pipeline.stages, or as many as make two slots a small part of memory. */
int tiers_stages(const struct job *j, const uint64_t *limit);
/* Cuts into stages whose frozen weights have about equal bytes. */
int tiers_cut(struct job *j, struct err *e);
void tiers_all(struct job *j);                            /* all stages' weights in files */
/* After planning that: sets j->in_file so that memory is used. False: a rank exceeds it even so. */
bool tiers_choose(struct job *j, const uint64_t *limit);

#endif
