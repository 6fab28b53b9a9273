/* A child of a process that is alone, for nobody else would see that the whole process was stopped. If its
 * heartbeats stop for as long as the limit says, while it is stopped by a signal, the child says so in shared memory
 * and wakes it by SIGCONT; it then ends itself. What stops both, such as Ctrl-Z, counts for nothing, and so does a
 * debugger.
 * The child dies with its parent.
 *
 * watchdog_begin: before the process has any other thread, because it forks. */
#ifndef CLUSTER_STALL_WATCHDOG_H
#define CLUSTER_STALL_WATCHDOG_H
#include <stdint.h>
void watchdog_begin(void);                                /* without memory or processes: nobody watches */
void watchdog_limit(uint64_t limit_ns);                   /* 0, as at the start: it only looks on */
/* The process lives. Several times a second. Returns for how long it stood still, ns, if that was too long; or 0. */
uint64_t watchdog_beat(void);
#endif
