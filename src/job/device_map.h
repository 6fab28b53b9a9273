/* Device maps of jobs: weights that lie outside the memory of the rank that computes with them, in host memory or on
 * disk. A plan has them only with pipeline.host_memory, and no run does. Pure. */
#ifndef JOB_DEVICE_MAP_H
#define JOB_DEVICE_MAP_H
#include "job/job.h"

/* Sets j->map where the configuration asks for a device map; otherwise it stays NULL. *cuts: stages follow it. After
 * the ranks of stages are known. 78. */
int job_map_find(struct job *j, bool *cuts, struct err *e);
/* Stages as the device map has them; the last rank computes what is on none. first_group: n_stages + 1 entries. */
void job_map_cut(const struct job *j, int *first_group);
/* After the placement: sets j->map if no cut asked for it, and counts its bytes. 78 if a trained weight is not on a
 * rank. */
int job_map_count(struct job *j, struct err *e);
int job_map_run_check(const struct job *j, struct err *e);   /* 78 if a run would need other places */
void job_map_free(struct device_map *t);
#endif
