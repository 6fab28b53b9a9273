/* The memory that a process may take: the free memory of its host, the limits of its cgroup and of the cgroups above,
 * and its own limits (ulimit). And the memory that a run takes besides its plan. Reading never fails: an unknown value
 * sets no limit. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H
#include <stdint.h>
#include "job/memory_limit.h"

/* A source of memory. id: equal for processes of one host that share it; 0 is the host itself. own: only of this
 * process. soft: no hard limit; above it the system slows processes down. bytes: what is left. */
struct memory_pool { uint64_t id, bytes; bool own, soft; char name[112]; };
/* What one process sees. host: equal numbers mean the same host. */
enum { MEMORY_POOLS = 12 };
struct memory_info { int host, n; struct memory_pool pool[MEMORY_POOLS]; };
/* root: prefix of all paths, "" except in tests; threads: that the process will start to compute. */
void memory_read(const char *root, int threads, struct memory_info *w);

/* from: for each pool, its entry in the first word that has it. */
struct memory {
    struct fit_host host;
    struct memory_info *word;
    struct fit_pool *pool;
    const struct memory_pool **from;
    bool *of;
};
/* word: what each process sees, one for each rank, or one for the process that has all ranks as threads (threads). m
 * owns and frees them. Pure. */
void memory_make(struct memory_info *word, int words, bool threads, struct memory *m);
/* For one word: places all ranks there, or the first n if n is not 0. own: each rank is a process. */
void memory_all(struct memory *m, int n, bool own);
/* Adds the memory for reading: of the job's open data sets, or as given (each: of a thread; shared: of all threads). */
void memory_reads(struct memory *m, const struct job *j);
void memory_reads_add(struct memory *m, const struct job *j, size_t each, size_t shared);
void memory_free(struct memory *m);
/* Adds a note if the job's plans exceed a soft limit. */
void memory_notes(const struct job *j, struct text *out);
#endif
