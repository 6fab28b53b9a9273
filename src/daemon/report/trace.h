/* run.trace: the measured steps as a file for Perfetto (https://ui.perfetto.dev) and chrome://tracing.
 *
 * Each stage of each replica is a process with these tracks: the rank's own thread (steps, in them actions, in those
 * kernels and waits), and one for each direction of each link. An arrow leads from each send to its receive. Thread:
 * the executor's of each rank. */
#ifndef DAEMON_REPORT_TRACE_H
#define DAEMON_REPORT_TRACE_H
#include "daemon/run/setup_int.h"
/* After the last step: gathers the ranks' records and writes the file on rank 0. Collective. 74. */
int trace_write(struct setup *b, struct err *e);
#endif
