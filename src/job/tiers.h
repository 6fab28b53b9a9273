/* Tiers: weights that lie outside the memory of the rank that computes with them, in host memory or on disk. So far
 * they are planned only. Pure. */
#ifndef JOB_TIERS_H
#define JOB_TIERS_H
#include "job/job.h"

/* Sets j->tiers where the configuration asks for a device map; otherwise it stays NULL. After the ranks of stages are
 * known. 78. */
int tiers_find(struct job *j, struct err *e);
/* Stages as the device map has them; the last rank computes what is on none. first_group: n_stages + 1 entries. */
void tiers_cut(const struct job *j, int *first_group);
/* Counts the bytes of j->tiers, after the placement. 78 if a trained weight is in a tier. */
int tiers_count(struct job *j, struct err *e);
int tiers_run_check(const struct job *j, struct err *e);   /* 78 if a run would need tiers */
void tiers_free(struct tiers *t);
#endif
