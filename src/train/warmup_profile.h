/* Times the first steps of a run, kernel by kernel: on every rank the second to the fourth of the full batch as
 * --profile times its steps; fewer if they are long, later ones if they are so short that caches and clocks are
 * still warming up. The results are numbers that can be added over ranks (exec/costs.h); side sends them to rank 0,
 * which grades with them.
 * Not on GPUs, which timing single kernels would slow down.
 *
 * Who may use it: boot makes one for each rank, side calls it. Thread: the executor's. After warmup_new it allocates
 * nothing; a transport copies the numbers once. */
#ifndef TRAIN_WARMUP_PROFILE_H
#define TRAIN_WARMUP_PROFILE_H
#include "report/result.h"
#include "report/warmup_costs.h"
#include "exec/costs.h"

struct warmup_profile;
/* behind: the step of the checkpoint from which the run goes on; 0: none. */
struct warmup_profile *warmup_new(const struct job *j, struct exec *s, int rank, uint64_t behind);
/* Called around each step. warmup_after returns this rank's numbers once, otherwise NULL. */
void warmup_before(struct warmup_profile *p, const struct order *o);
const double *warmup_after(struct warmup_profile *p, const struct order *o, const struct report *r);
/* The run goes back to that step: what is being timed is timed anew behind it. */
void warmup_again(struct warmup_profile *p, uint64_t step);
void warmup_free(struct warmup_profile *p);
#endif
