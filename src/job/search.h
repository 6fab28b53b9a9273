/* --plan=search: which number of pipelines, ranks and threads, which schedule, cut and split size would be fastest
 * within the memory of the ranks. Pure, apart from reading the profile. */
#ifndef JOB_SEARCH_H
#define JOB_SEARCH_H
#include "job/job.h"

struct search_request {
    int n_ranks;                                           /* 0: one rank for each stage of the configuration */
    int cores;                                             /* cores here; used if nothing sets their number */
    const char *file;                                      /* NULL, or the name that the configuration will have */
    bool json;                                             /* prints JSON instead of a table */
    struct text *best;                                     /* NULL, or receives the best as a configuration */
    void (*tell)(void *to, int done, int all); void *to;   /* receives the number of plans tried; tell may be NULL */
};
/* j has device and model. */
int search_run(struct job *j, const struct search_request *r, struct text *out, struct err *e);
#endif
