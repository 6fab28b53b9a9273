/* Modes without MPI: help, configuration, network, plan. They print to standard output.
 *
 * This folder: main, and the modes that need no mpirun: --plan, --summary, --init, --show-batch,
 * --compare. See docs/design/service.md. */
#ifndef CLI_MODES_H
#define CLI_MODES_H
#include "conf/opts.h"
/* Plans are for n_ranks; 0: as many as stages. Returns the exit status: e's code, or E_DIFFERS. */
int mode_run(const struct opts *o, int n_ranks, struct err *e);
#endif
