/* Watches other ranks on this host from outside. Before ranks have met, while MPI starts, no rank can report that
 * another was stopped. The other ranks are the other children of the launcher. Any thread, one at a time. */
#ifndef CLUSTER_STARTUP_MONITOR_H
#define CLUSTER_STARTUP_MONITOR_H
#include <stdint.h>
#include "base/err.h"
struct startup_monitor;
struct startup_monitor *startup_monitor_new(void);        /* never freed */
/* How long ago this process last called startup_monitor_poll. */
uint64_t startup_monitor_slept(const struct startup_monitor *s, uint64_t now);
/* Looks for a rank that a signal has stopped for longer than limit_ns (0: none counts). A long gap between two calls
 * does not count. Of the ranks that run, the lowest finds it first. Returns for how long it was stopped and sets
 * e (81); 0: there is none. */
uint64_t startup_monitor_poll(struct startup_monitor *s, uint64_t now, uint64_t limit_ns, struct err *e);
#endif
