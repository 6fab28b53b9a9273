/* Settings that were given and change nothing about this run, for people. Pure. */
#ifndef DAEMON_RUN_MOOT_H
#define DAEMON_RUN_MOOT_H
#include "job/job.h"
/* Lines for people, one a reason; none where every setting that concerns GPUs has its effect, or its default. After
 * job_plan. nccl: GPUs reach each other by it. */
void moot_judge(const struct job *j, bool nccl, struct text *out);
#endif
