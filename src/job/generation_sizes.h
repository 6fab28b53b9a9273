/* How many sequences a run that generates works on at a time. Pure, apart from reading prompts. */
#ifndef JOB_GENERATION_SIZES_H
#define JOB_GENERATION_SIZES_H
#include "job/job.h"

/* Slots for sequences, which groups share, at most `rows` each; rows of a batch that prefills. After job_plan. */
struct generation_sizes { int slots, groups, rows, prefill_rows; };
struct generation_sizes generation_sizes(const struct job *j);
/* Reads the prompts, and sets the sizes of the caches in a copy of the configuration. 65, 66, 78. */
int generation_find(struct job *j, struct err *e);
#endif
