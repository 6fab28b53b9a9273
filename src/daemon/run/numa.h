/* Where devices and cores are within a host: NUMA nodes, from Linux's files below `sys`, which is "/sys" but in tests.
 * Each rank looks for itself, rank 0 judges. */
#ifndef DAEMON_RUN_NUMA_H
#define DAEMON_RUN_NUMA_H
#include <sched.h>
#include "base/text.h"

/* What a rank found; -1: nobody knows, or there is one node only. refused: errno of numa_prefer, 0: none. */
struct numa_word { int gpu, cores, refused; };
/* bus: a PCI device as CUDA names it, "0000:3B:00.0". cores: the node of the lowest of `mine`, but that of the device
 * if one of them lies there. */
void numa_look(const char *sys, const char *bus, const cpu_set_t *mine, struct numa_word *w);
/* From now on memory that this thread touches first lies on that node, while it has some: also what is pinned. Returns
 * an errno. */
int numa_prefer(int node);
/* Lines for people, each with its end: none where all is well. */
void numa_judge(const struct numa_word *w, int n, struct text *out);
#endif
