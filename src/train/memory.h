/* What memory a process may take: what its host has free, the limits of its cgroup and of those above it, and its own
 * (ulimit). And what a run takes besides its plan. Reading never fails: what the system does not say limits nothing. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H
#include <stdint.h>
#include "job/memory_limit.h"

/* id: what processes of one host share has the same one, 0 is the host itself; own: the process's alone; soft: no
 * limit, above it the system slows processes down. bytes: what is left of it. */
struct memory_pool { uint64_t id, bytes; bool own, soft; char name[112]; };
/* host: equal numbers mean the same host. */
enum { MEMORY_POOLS = 12 };
struct memory_info { int host, n; struct memory_pool pool[MEMORY_POOLS]; };
/* root: before all paths that are read, "" but in tests; threads: that the process will start to compute. */
void memory_look(const char *root, int threads, struct memory_info *w);

/* from: of each pool, the first word's. */
struct memory {
    struct fit_host host;
    struct memory_info *word;
    struct fit_pool *pool;
    const struct memory_pool **from;
    bool *of;
};
/* From the words of all ranks, which it owns and frees; or, with threads, from the one of the process that has them
 * all. Pure. */
void memory_make(struct memory_info *word, int words, bool threads, struct memory *m);
/* Of one word: all ranks will be there, or the first so many, where n is not 0. own: each in a process of its own. */
void memory_all(struct memory *m, int n, bool own);
/* Counts what reading takes, of the data sets that the job has open, or as its caller has found it: each thread, and
 * what all share. */
void memory_reads(struct memory *m, const struct job *j);
void memory_reads_add(struct memory *m, const struct job *j, size_t each, size_t shared);
void memory_free(struct memory *m);
/* Adds a note for a soft limit that the job's plans are above. */
void memory_notes(const struct job *j, struct text *out);
#endif
