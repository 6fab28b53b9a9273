/* A run of this process's ranks, from the configuration to the last line of the metrics. Set-up goes in phases; each
 * ends in a vote, so that all ranks enter the next one or none. Main thread. */
#ifndef DAEMON_RUN_SETUP_H
#define DAEMON_RUN_SETUP_H
#include "daemon/talk/opts.h"
/* Returns the exit code. Rank 0 has printed the error line, if there was an error. */
int setup_run(const struct opts *o, int *argc, char ***argv);
/* Whether this process may speak for the job: rank 0 of a launcher, or no launcher at all. Needs no MPI. */
bool setup_is_first(void);
bool setup_launched(void);                                /* whether there is a launcher */
/* How many ranks the launcher has started; 0: unknown, or no launcher. Needs no MPI. */
int setup_ranks(void);
#endif
