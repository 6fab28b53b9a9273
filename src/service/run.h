/* A run of this process's ranks, from the configuration to the last line of the metrics. Set-up has phases; each ends
 * in a vote, so that all ranks enter the next one or none. Main thread. */
#ifndef SERVICE_RUN_H
#define SERVICE_RUN_H
#include "conf/opts.h"
/* Returns the exit status. Rank 0 has printed the error line, if there was an error. */
int run_main(const struct opts *o, int *argc, char ***argv);
#endif
