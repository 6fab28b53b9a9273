/* Other ranks on this host, seen from outside: before ranks have met, while MPI starts, nobody else can tell that one
 * of them was stopped. They are the other children of the launcher. Any thread, one at a time. */
#ifndef CLUSTER_STARTUP_MONITOR_H
#define CLUSTER_STARTUP_MONITOR_H
#include <stddef.h>
#include <stdint.h>
struct startup_monitor;
struct startup_monitor *startup_monitor_new(void);        /* kept until the process ends */
/* How long this process itself did not look. */
uint64_t startup_monitor_slept(const struct startup_monitor *s, uint64_t now);
/* Looks for one that has been stopped by a signal for longer than limit_ns (0: for nobody), as far as it was looked at
 * in the meantime. Of the ranks that are not, the lowest finds it first. Returns for how long, and fills in a line
 * about it; 0: there is none. */
uint64_t startup_monitor_look(struct startup_monitor *s, uint64_t now, uint64_t limit_ns, char *text, size_t size);
#endif
