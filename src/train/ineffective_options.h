/* Reports settings that were given but have no effect in this run. Pure. */
#ifndef TRAIN_INEFFECTIVE_OPTIONS_H
#define TRAIN_INEFFECTIVE_OPTIONS_H
#include "job/job.h"
/* Adds lines for people, one for each reason; none if every setting for GPUs has an effect or its default. After
 * job_plan. nccl: transfers between GPUs use NCCL. */
void ineffective_options_report(const struct job *j, bool nccl, struct text *out);
#endif
