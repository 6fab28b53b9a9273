/* Does a planned job fit the memory of its ranks, and what would? Pure, as job.h. */
#ifndef JOB_FIT_H
#define JOB_FIT_H
#include "job/job.h"

uint64_t fit_bytes(const struct job *j, int rank);         /* that the rank allocates: the largest plan of the set */
/* 78 where a rank is above its limit: which, by how much, and which changes would make it fit, each tried by planning.
 */
int fit_check(const struct job *j, struct err *e);
uint64_t fit_missing(const struct job *j);                 /* bytes that the worst rank is above its limit */
bool fit_all(const struct job *j);                         /* the same, only asked */
/* Plans j's network under another configuration, for n_ranks. The graph stays j's; fit_variant_free, in any case. */
int fit_variant(const struct job *j, const struct conf *c, int n_ranks, struct job *out, struct err *e);
void fit_variant_free(struct job *out);
#endif
