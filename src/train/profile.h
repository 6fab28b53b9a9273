/* --profile: measures what each kernel group costs on this machine's devices, all ranks busy, and writes
 * RUN/profile.json.
 *
 * Collective: every rank makes the same calls, between votes. Thread: the executor's. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H
#include "train/setup.h"
/* Sets the sizes to measure. Plans the largest before kernels are measured, so that errors of the configuration show
 * early. 65, 66, 78. */
int profile_check(struct setup *b, struct err *e);
/* Makes one plan for each size; b->conf becomes a copy that describes the measurement. 65, 66, 78. */
int profile_plan(struct setup *b, struct err *e);
/* Opens the device with these plans, for binding. 69. */
int profile_open(struct setup *b, struct err *e);
/* Runs the steps, then measures the links. After a failure all ranks have been informed, as by coordinator_run and
 * worker_run, and nothing has been closed. */
int profile_measure(struct setup *b, struct err *e);
/* Rank 0: makes the directory and writes the file. 73, 74. */
int profile_write(struct setup *b, struct err *e);
/* check_hosts.c, for --check-hosts: after set-up as for a profile. Rank 0: adds a table of all ranks to out, what is
 * below 0.8 of the median to slow. After a failure as profile_measure; 80. */
int check_hosts(struct setup *b, struct text *out, struct text *slow, struct err *e);
void profile_plans_free(struct setup *b);              /* called by the maker */
#endif
