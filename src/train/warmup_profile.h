/* Times the kernels of the first steps of a run. Every rank times the second to the fourth full batch, as --profile
 * times its steps. It times fewer steps if they are long, and later ones if steps are so short that caches and clocks
 * still warm up. The results are numbers that can be added over ranks (exec/costs.h). They go to rank 0, which grades
 * with them. Not on GPUs, because timing single kernels would slow them down.
 *
 * Set-up makes one for each rank; control_channel.c calls it. Thread: the executor's. After warmup_new it allocates
 * nothing; a transport copies the numbers once. */
#ifndef TRAIN_WARMUP_PROFILE_H
#define TRAIN_WARMUP_PROFILE_H
#include "report/result.h"
#include "report/warmup_costs.h"
#include "exec/costs.h"

struct warmup_profile;
/* behind: the step of the checkpoint from which the run continues; 0: none. */
struct warmup_profile *warmup_new(const struct job *j, struct exec *s, int rank, uint64_t behind);
/* Called before and after each step. warmup_after returns this rank's numbers once, otherwise NULL. */
void warmup_before(struct warmup_profile *p, const struct order *o);
const double *warmup_after(struct warmup_profile *p, const struct order *o, const struct report *r);
/* The run returns to that step. Unfinished timing starts again after it. */
void warmup_again(struct warmup_profile *p, uint64_t step);
void warmup_free(struct warmup_profile *p);
#endif
