/* Finds out whether other programs use the cores that a rank may use, while the job starts: mpirun binds rank i to core
 * i, so two jobs on one machine take the same cores and leave the others idle. Linux: /proc/stat, /sys. Each rank looks
 * at its own host, rank 0 checks. */
#ifndef CLUSTER_CORES_H
#define CLUSTER_CORES_H
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* Ticks of the kernel of each processor since the machine started. total 0: there is no such processor. */
struct core_times { uint64_t busy[CPU_SETSIZE], total[CPU_SETSIZE]; };
/* Reads the text of /proc/stat. Time that a hypervisor gave to others counts neither as busy nor in total. */
void core_times_parse(const char *stat, struct core_times *t);

/* What a rank saw. A core is named by the first of its processors (hardware threads). */
struct core_info {
    char host[65];
    bool measured, bound;                                 /* bound: by its launcher, to fewer than the launcher has */
    /* processors that it may use, threads that it computes with, cores that the launcher has */
    int processors, threads, allowed;
    /* its own cores; those of the launcher: all, and the idle ones */
    cpu_set_t cores, there, idle;
    double busy, own;                                     /* in processors: all that ran on its cores; its own share */
};
/* Fills cores, idle, processors, allowed, bound and busy. first: of each processor, the first one of its core. */
void core_info_fill(const struct core_times *before, const struct core_times *after, const cpu_set_t *mine,
                    const cpu_set_t *launcher, const int *first, struct core_info *w);
/* Adds lines for people, none where all is well. */
void cores_report(const struct core_info *w, int n, struct text *out);

/* What needs no watching: host, cores, there, processors, allowed, bound. */
void cores_look(bool launched, struct core_info *w);
/* The cores, a processor of each, that the launcher of rank `me` has and that no rank is bound to: for threads that do
 * not compute a rank's steps. None where the rank is not bound. */
void cores_spare(const struct core_info *w, int n, int me, cpu_set_t *out);

/* A watch on this process's cores. cores_begin takes the first sample; cores_end may compute for a moment to have
 * looked long enough, and frees c. */
struct cores;
struct cores *cores_begin(void);
void cores_end(struct cores *c, bool launched, int threads, struct core_info *w);
#endif
