/* --plan=search: how many replicas, ranks and threads, and which schedule, cut and split size would be fastest within
 * the memory of the ranks. Pure apart from reading the profile. */
#ifndef JOB_SEARCH_H
#define JOB_SEARCH_H
#include "job/job.h"

struct search_request {
    int n_ranks;                                           /* 0: as many as the configuration has stages */
    int cores;                                             /* those that there are; where nobody says how many */
    const char *file;                                      /* NULL, or the name that the configuration will have */
    bool json;                                             /* the answer: JSON instead of a table */
    struct text *best;                                     /* NULL, or where the best goes as a configuration */
    void (*tell)(void *to, int done, int all); void *to;   /* hears how many plans were tried; tell may be NULL */
};
/* j has device and model. */
int search_run(struct job *j, const struct search_request *r, struct text *out, struct err *e);
#endif
