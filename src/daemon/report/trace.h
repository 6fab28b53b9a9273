/* run.trace: the measured steps as a file for Perfetto (https://ui.perfetto.dev) and chrome://tracing.
 *
 * One process a stage; its tracks: the rank's own thread (step, its actions, in them kernels and waits), and one for
 * each direction of each neighbour's link. An arrow leads from each send to its receive. Thread: the executor's of each
 * rank. */
#ifndef DAEMON_REPORT_TRACE_H
#define DAEMON_REPORT_TRACE_H
#include "daemon/run/boot_int.h"
/* After the last step: gathers what the ranks noted and writes the file on rank 0. Collective. 74. */
int trace_write(struct boot *b, struct err *e);
#endif
