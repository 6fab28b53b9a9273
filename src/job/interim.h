/* The texts of generate.every_steps: the job that a training run's ranks have beside their own. It has the same network
 * with caches, on the ranks of the first pipeline, cut at the same layers. So each rank copies its own weights. Pure,
 * apart from reading the prompts and the network's files. */
#ifndef JOB_INTERIM_H
#define JOB_INTERIM_H
#include "job/job.h"

/* Sets j->interim, with its network and prompts, if the run trains with generate.every_steps. After job_model. 65, 66,
 * 78. */
int interim_model(struct job *j, struct err *e);
/* Plans it for the stages of j, whose plan is made: each time that j is planned. 78. */
int interim_plan(struct job *j, struct err *e);
void interim_free(struct job *j);
/* Sets out->interim for out, another job with j's network, before its plan is made. It shares the network and prompts
 * of j's. Call interim_variant_free in any case. */
void interim_variant(const struct job *j, struct job *out);
void interim_variant_free(struct job *out);
#endif
