/* What libraries take of a device beside the plan once it is in use: kernels that they load, buffers of NCCL's links,
 * recorded graphs. Pure. */
#ifndef DAEMON_RUN_RESERVE_H
#define DAEMON_RUN_RESERVE_H
#include "plan/plan.h"

/* Of one rank. links: each direction of each neighbour; graphs: recorded actions, with so many calls of kernels. */
struct reserve { int links, graphs, calls; };
/* links: over NCCL (otherwise none); neighbours: those beside the rank are among them in any case, for --profile;
 * graphs: actions are recorded. */
struct reserve_request { struct plan *const *plan; int n_plans, rank, n_ranks; bool links, neighbours, graphs; };
void reserve_count(const struct reserve_request *q, struct reserve *r);
/* ctas: blocks of threads of a link, at most; a power of two of them is taken. */
size_t reserve_bytes(const struct reserve *r, int ctas);
#endif
