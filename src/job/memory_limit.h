/* Does a planned job fit the memory of its ranks and of their hosts, and what would? Pure, as job.h. */
#ifndef JOB_MEMORY_LIMIT_H
#define JOB_MEMORY_LIMIT_H
#include "job/job.h"

/* Memory that ranks take from: a host's, a cgroup's, a process's. of: which of the ranks of all replicas do, NULL:
 * all; each: every one of them has as much for itself; soft: above it a run gets slow, and is no error. name: as the
 * end of "more than the 2 GiB of ...". */
struct fit_pool { uint64_t bytes; const char *name; const bool *of; int n_of; bool each, soft; };
/* What the daemon says of the hosts. beside: what a rank of all replicas takes besides its plan, given
 * that a rank that reads samples takes reader, and its process cache, for that; threads: one process has all ranks;
 * elsewhere: ranks may run on other machines; advisory:
 * limit_check, limit_all and limit_missing leave hosts aside. */
struct fit_host {
    const struct fit_pool *pool; int n;
    uint64_t (*beside)(const struct job *j, int rank);
    uint64_t reader, cache;
    bool threads, elsewhere, advisory;
};

uint64_t limit_bytes(const struct job *j, int rank);       /* that the rank allocates: the largest plan of the set */
/* Does a limit bind the planner: pipeline.max_memory, or a rank's share of its host? */
bool limit_limited(const struct job *j);
/* Bytes of its plan that each rank of a replica may use where ranks share pools: evenly, or as their plans need. */
void limit_share(const struct job *j, bool evenly, uint64_t *room);
/* A pool that has too little, and by how much; NULL: there is none. soft: one of those, or one of the others. */
const struct fit_pool *limit_pool_short(const struct job *j, bool soft, uint64_t *need);
/* Sets e to code with what a pool misses and which changes would make it fit. Returns -1. */
int limit_pool_error(const struct job *j, int code, struct err *e);
/* 78 where a rank is above pipeline.max_memory: which, by how much, and which changes would make it fit, each tried by
 * planning. 69, with the same, where its host has less. */
int limit_check(const struct job *j, struct err *e);
uint64_t limit_missing(const struct job *j);               /* bytes that the worst rank, or pool, is above its limit */
bool limit_all(const struct job *j);                       /* the same, only asked */
/* Plans j's network under another configuration, for n_ranks. The graph stays j's; limit_variant_free, in any case. */
int limit_variant(const struct job *j, const struct conf *c, int n_ranks, struct job *out, struct err *e);
void limit_variant_free(struct job *out);
#endif
