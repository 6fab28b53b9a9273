/* A rank's executor for the texts of generate.every_steps (job/interim.h), beside the one that trains, and its weights.
 * Thread: the executor's of each rank. Ranks beyond the first pipeline have none. */
#ifndef TRAIN_INTERIM_RANK_H
#define TRAIN_INTERIM_RANK_H
#include "exec/exec.h"
#include "job/job.h"

struct interim;
/* Opens the executor; `like` is the request of the one that trains. *out is NULL without j->interim, or beyond the
 * first pipeline. Allocates as exec_open. 69, 78. */
int interim_open(const struct job *j, int rank, const struct exec_request *like, struct interim **out, struct err *e);
int interim_bind(struct interim *s, struct exec *trains, struct err *e);   /* after exec_bind of both; s may be NULL */
/* Copies this rank's weights, or their averages, from the executor that trains, between steps. */
int interim_weights(struct interim *s, struct err *e);
struct exec *interim_exec(const struct interim *s);      /* NULL of NULL */
void interim_close(struct interim *s);                   /* s may be NULL */
#endif
