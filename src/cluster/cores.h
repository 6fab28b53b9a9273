/* Finds out at start-up whether other programs use a rank's cores. mpirun binds rank i to core i, so two jobs on one
 * machine take the same cores and leave the others idle. Linux: /proc/stat, /sys. Each rank reads its own host; rank 0
 * checks. */
#ifndef CLUSTER_CORES_H
#define CLUSTER_CORES_H
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* Kernel ticks of each processor since the machine started. total 0: the processor does not exist. */
struct core_times { uint64_t busy[CPU_SETSIZE], total[CPU_SETSIZE]; };
/* Parses the text of /proc/stat. Time stolen by a hypervisor counts neither as busy nor in total. */
void core_times_parse(const char *stat, struct core_times *t);

/* What a rank measured. A core is named by the first of its processors (hardware threads). */
struct core_info {
    char host[65];
    bool measured, bound;                             /* bound: by its launcher, to fewer cores than the launcher has */
    /* processors that the rank may use, threads that it computes with, cores of the launcher */
    int processors, threads, allowed;
    /* the rank's own cores; all cores of the launcher; the launcher's idle cores */
    cpu_set_t cores, there, idle;
    double busy, own;                             /* in processors: all programs on the rank's cores; this rank alone */
};
/* Fills cores, there, idle, processors, allowed, bound and busy. first: for each processor, the first processor of its
 * core. */
void core_info_fill(const struct core_times *before, const struct core_times *after, const cpu_set_t *mine,
                    const cpu_set_t *launcher, const int *first, struct core_info *w);
/* Adds lines for people, none if there is no problem. */
void cores_report(const struct core_info *w, int n, struct text *out);

/* Fills what needs no measurement: host, cores, there, processors, allowed, bound. */
void cores_read(bool launched, struct core_info *w);
/* Returns the cores of rank `me`'s launcher to which no rank is bound, one processor for each. They are for threads
 * that do not compute a rank's steps. Empty if the rank is not bound. */
void cores_spare(const struct core_info *w, int n, int me, cpu_set_t *out);

/* Measures this process's cores. cores_begin takes the first sample. cores_end takes the second and frees c; it may
 * spin for a moment so that the measurement is long enough. */
struct cores;
struct cores *cores_begin(void);
void cores_end(struct cores *c, bool launched, int threads, struct core_info *w);
#endif
