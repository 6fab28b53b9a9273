/* A child that watches a process which runs alone: no other process would notice that it was stopped. If a signal has
 * stopped the process, and no beat comes for longer than the limit, the child acts. It writes that to shared memory and
 * wakes the process by SIGCONT; the process then ends itself. A stop of both processes, such as Ctrl-Z, does not count,
 * and neither does a debugger. The child dies with its parent.
 *
 * watchdog_begin: before the process has any other thread, because it forks. */
#ifndef CLUSTER_STALL_WATCHDOG_H
#define CLUSTER_STALL_WATCHDOG_H
#include <stdint.h>
void watchdog_begin(void);                                /* without memory or a process for it: nothing watches */
void watchdog_limit(uint64_t limit_ns);                   /* 0, the initial value: the child does nothing */
/* Reports that the process runs. Several times a second. Returns for how long it was stopped, ns, if that exceeded the
 * limit; otherwise 0. */
uint64_t watchdog_beat(void);
#endif
