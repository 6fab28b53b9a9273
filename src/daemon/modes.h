/* What mpstaged can tell without MPI: help, configuration, network, plan. Prints to standard output. */
#ifndef DAEMON_MODES_H
#define DAEMON_MODES_H
#include "daemon/opts.h"
/* Plans are for n_ranks; 0: as many as stages. Returns the exit code. */
int mode_run(const struct opts *o, int n_ranks, struct err *e);
#endif
