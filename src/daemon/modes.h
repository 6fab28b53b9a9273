/* What mpstaged can tell without MPI: help, configuration, network, plan. Prints to standard output. Returns the exit
 * code. */
#ifndef DAEMON_MODES_H
#define DAEMON_MODES_H
#include "daemon/opts.h"
int mode_run(const struct opts *o, struct err *e);
#endif
