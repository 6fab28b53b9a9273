/* --plan=search: which schedule, cut and split size would be fastest within the memory of the ranks. Pure apart from
 * the file that it is asked to write. */
#ifndef DAEMON_SEARCH_H
#define DAEMON_SEARCH_H
#include "daemon/job.h"
#include "daemon/ready.h"

/* j has device and model. For n_ranks; 0: as many as the configuration has stages. The table of the best, or JSON.
 * write: NULL, or where the best goes as a configuration. r, which may be NULL, hears how far it is. */
int search_run(struct job *j, int n_ranks, bool json, const char *write, struct ready *r, struct text *out,
               struct err *e);
#endif
