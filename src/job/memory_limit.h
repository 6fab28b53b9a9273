/* Does a planned job fit the memory of its ranks and of their hosts, and which changes would fit? Pure, as job.h. */
#ifndef JOB_MEMORY_LIMIT_H
#define JOB_MEMORY_LIMIT_H
#include "job/job.h"

/* Memory that ranks share: a host's, a cgroup's, a process's. of: the ranks of the mesh that take
 * from it; NULL: all. each: each of these ranks has `bytes` for itself. soft: a run above it is slow, but legal. name:
 * the end of "more than the 2 GiB of ...". */
struct fit_pool { uint64_t bytes; const char *name; const bool *of; int n_of; bool each, soft; };
/* The hosts, as src/train/memory.c reads them. beside: bytes that a rank of the mesh takes besides its plan. A rank
 * that reads samples takes `reader` for that, and its process `cache`. threads: one process has all ranks. elsewhere:
 * ranks may run on other machines. advisory: limit_check, limit_all and limit_missing ignore hosts. */
struct fit_host {
    const struct fit_pool *pool; int n;
    uint64_t (*beside)(const struct job *j, int rank);
    uint64_t reader, cache;
    bool threads, elsewhere, advisory;
};

uint64_t limit_bytes(const struct job *j, int rank);       /* bytes that the rank allocates: its largest plan */
/* The rank that exceeds pipeline.max_memory most; -1: all ranks fit; -2: error. */
int limit_worst_rank(const struct job *j, uint64_t *need, uint64_t *limit, struct err *e);
/* Does a limit bind the planner: pipeline.max_memory, or a rank's share of its host? */
bool limit_limited(const struct job *j);
/* Bytes that each rank of a pipeline may use for its plan where ranks share pools: evenly, or as their plans need. */
void limit_share(const struct job *j, bool evenly, uint64_t *free_bytes);
/* The pool that lacks the most memory, and in *need the bytes that its ranks need; NULL: none. Only soft or only hard
 * pools count. */
const struct fit_pool *limit_pool_short(const struct job *j, bool soft, uint64_t *need);
/* Sets e to `code`: what a pool lacks and which changes would fit. Returns -1. */
int limit_pool_error(const struct job *j, int code, struct err *e);
/* 78 if a rank is above pipeline.max_memory. The message has the rank, the excess, and the changes that would fit, each
 * tried by planning. 69, with the same text, if its host has less. Where only a device map is planned, a rank may be
 * above its limit, which counts weights alone in the map. */
int limit_check(const struct job *j, struct err *e);
/* bytes by which the worst rank, or pool, exceeds its limit */
uint64_t limit_missing(const struct job *j);
bool limit_all(const struct job *j);                       /* does everything fit? sets no error */
/* Plans j's network under another configuration, for n_ranks. The graph stays j's. Call limit_variant_free in any
 * case. */
int limit_variant(const struct job *j, const struct conf *c, int n_ranks, struct job *out, struct err *e);
void limit_variant_free(struct job *out);
#endif
