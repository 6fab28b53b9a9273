/* The first steps of a run, kernel by kernel: on every rank steps 2 to 4 of the full batch are timed as --profile times
 * its steps; fewer where they are long, later ones where they are so short that caches and clocks still warm up. What
 * comes of it are numbers that add up over ranks (exec/costs.h); side sends them to rank 0, which grades with them. Not
 * on GPUs: timing kernels one by one would hold them up.
 *
 * Who may use it: boot makes one a rank, side calls it. Thread: the executor's. After probe_new it allocates
 * nothing; a transport copies the numbers once, on their way. */
#ifndef DAEMON_RUN_PROBE_H
#define DAEMON_RUN_PROBE_H
#include "exec/costs.h"
#include "job/job.h"
#include "plan/cost.h"

enum { PROBE_FIRST = 2, PROBE_STEPS = 3 };
struct probe;
/* How many numbers a rank says, 0: nothing is timed in this run. The last three are how many steps were timed, on all
 * ranks together, and the first and the last one, as rank 0 has them. */
int probe_count(const struct job *j);
/* Costs with room for them: one size, the full micro-batch. Only if probe_count. */
struct cost *probe_costs(const struct job *j);
struct probe *probe_new(const struct job *j, struct exec *s, int rank);
/* Around each step. after: once, this rank's numbers; otherwise NULL. */
void probe_before(struct probe *p, const struct order *o);
const double *probe_after(struct probe *p, const struct order *o, const struct report *r);
void probe_free(struct probe *p);
#endif
