/* What libraries take of a device in use besides the plan: kernels that they load, buffers of NCCL's links, recorded
 * graphs. Pure. */
#ifndef TRAIN_GPU_HEADROOM_H
#define TRAIN_GPU_HEADROOM_H
#include "plan/plan.h"

/* What a rank has. links: each direction of each neighbour, and sums over replicas; graphs: recorded actions, with so
 * many calls of kernels. */
struct reserve { int links, graphs, calls; };
/* plan: those of the rank's replica; rank: of n_ranks of all replicas; links: transfers go over NCCL; neighbours: count
 * the ranks before and after this one as neighbours in any case, for --profile; graphs: actions are recorded. */
struct reserve_request { struct plan *const *plan; int n_plans, rank, n_ranks; bool links, neighbours, graphs; };
void gpu_headroom_count(const struct reserve_request *q, struct reserve *r);
/* ctas: the most blocks of threads of a link, rounded down to a power of two. */
size_t gpu_headroom_bytes(const struct reserve *r, int ctas);
#endif
