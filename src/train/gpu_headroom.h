/* Device memory that libraries take besides the plan: kernels that they load, buffers of NCCL's links, recorded graphs.
 * Pure. */
#ifndef TRAIN_GPU_HEADROOM_H
#define TRAIN_GPU_HEADROOM_H
#include "plan/plan.h"

/* What a rank has. links: one for each direction of each neighbour, and one for sums along AXIS_DP. graphs: recorded
 * actions, which contain `calls` calls of kernels. */
struct reserve { int links, graphs, calls; };
/* plan: the plans of the rank's pipeline. rank: of n_ranks of all pipelines. links: transfers use NCCL. neighbours:
 * always count the ranks before and after this one as neighbours, for --profile. graphs: actions are recorded. */
struct reserve_request { struct plan *const *plan; int n_plans, rank, n_ranks; bool links, neighbours, graphs; };
void gpu_headroom_count(const struct reserve_request *q, struct reserve *r);
/* ctas: maximum thread blocks of a link, rounded down to a power of two. */
size_t gpu_headroom_bytes(const struct reserve *r, int ctas);
#endif
