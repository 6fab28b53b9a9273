/* Times the first steps of a run, kernel by kernel: on every rank the second to the fourth of the full batch as
 * --profile times its steps; fewer if they are long, later ones if they are so short that caches and clocks are
 * still warming up. The results are numbers that can be added over ranks (exec/costs.h); side sends them to rank 0,
 * which grades with them.
 * Not on GPUs, which timing single kernels would slow down.
 *
 * Who may use it: boot makes one for each rank, side calls it. Thread: the executor's. After probe_new it allocates
 * nothing; a transport copies the numbers once. */
#ifndef DAEMON_RUN_PROBE_H
#define DAEMON_RUN_PROBE_H
#include "exec/costs.h"
#include "job/job.h"
#include "plan/cost.h"

enum { PROBE_FIRST = 2, PROBE_STEPS = 3 };
struct probe;
/* How many numbers a rank reports, 0: nothing is timed in this run. The last three are how many steps were timed, added
 * over ranks, and the first and last of them as rank 0 has them. */
int probe_count(const struct job *j);
/* Costs for these numbers: one size, the full micro-batch. Only if probe_count is not 0. */
struct cost *probe_costs(const struct job *j);
/* behind: the step of the checkpoint from which the run goes on; 0: none. */
struct probe *probe_new(const struct job *j, struct exec *s, int rank, uint64_t behind);
/* Called around each step. probe_after returns this rank's numbers once, otherwise NULL. */
void probe_before(struct probe *p, const struct order *o);
const double *probe_after(struct probe *p, const struct order *o, const struct report *r);
/* The run goes back to that step: what is being timed is timed anew behind it. */
void probe_again(struct probe *p, uint64_t step);
void probe_free(struct probe *p);
#endif
