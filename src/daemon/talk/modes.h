/* Modes without MPI: help, configuration, network, plan. They print to standard output. */
#ifndef DAEMON_TALK_MODES_H
#define DAEMON_TALK_MODES_H
#include "daemon/talk/opts.h"
/* Plans are for n_ranks; 0: as many as stages. Returns the exit code. */
int mode_run(const struct opts *o, int n_ranks, struct err *e);
#endif
