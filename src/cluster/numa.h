/* The NUMA nodes of devices and cores, from Linux's files below `sys`, which is "/sys" but in tests. Each rank looks at
 * its own host, rank 0 checks. */
#ifndef CLUSTER_NUMA_H
#define CLUSTER_NUMA_H
#include <sched.h>
#include "base/text.h"

/* What a rank found; -1: unknown, or the only node. refused: errno of numa_prefer, 0: none. */
struct numa_info { int gpu, cores, refused; };
/* bus: a PCI device as CUDA names it, "0000:3B:00.0". cores becomes the device's node if one of `mine` lies there,
 * otherwise that of the lowest of `mine`. */
void numa_look(const char *sys, const char *bus, const cpu_set_t *mine, struct numa_info *w);
/* Places memory that this thread touches first, also pinned memory, on that node while it has room. Returns an
 * errno. */
int numa_prefer(int node);
/* Adds lines for people, none where all is well. */
void numa_report(const struct numa_info *w, int n, struct text *out);
#endif
