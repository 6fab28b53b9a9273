/* The NUMA nodes of devices and cores, from Linux's files below `sys`, which is "/sys" except in tests. Each rank reads
 * its own host; rank 0 checks. */
#ifndef CLUSTER_NUMA_H
#define CLUSTER_NUMA_H
#include <sched.h>
#include "base/text.h"

/* What a rank found; -1: unknown, or the only node. refused: errno of numa_prefer; 0: no error. */
struct numa_info { int gpu, cores, refused; };
/* bus: a PCI device as CUDA names it, "0000:3B:00.0". Sets cores to the device's node if one of `mine` is on it,
 * otherwise to the lowest node that has one of `mine`. */
void numa_read(const char *sys, const char *bus, const cpu_set_t *mine, struct numa_info *w);
/* Places memory that this thread touches first, also pinned memory, on that node while the node has free memory.
 * Returns an errno. */
int numa_prefer(int node);
/* Adds lines for people, none if there is no problem. */
void numa_report(const struct numa_info *w, int n, struct text *out);
#endif
