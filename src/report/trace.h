/* run.trace: the measured steps as a file for Perfetto (https://ui.perfetto.dev) and chrome://tracing.
 *
 * Each rank is a process with these tracks: the rank's own thread (steps, inside them actions, inside those kernels
 * and waits), and one for each direction of each link. An arrow leads from each send to its receive. Thread: the
 * executor's of each rank. */
#ifndef REPORT_TRACE_H
#define REPORT_TRACE_H
#include "base/out.h"
#include "cluster/world.h"
#include "exec/exec.h"
#include "job/job.h"

/* at: where rank 0 writes the file */
struct trace_request { struct world *world; const struct job *job; struct exec *exec; const struct out_place *at; };
/* After the last step: gathers the ranks' records and writes the file on rank 0. Collective. 74. */
int trace_write(const struct trace_request *q, struct err *e);
#endif
