/* What every transport must do: run by t_tp.c (threads) and tp_mpi_check.c (processes). */
#ifndef TESTS_TP_BATTERY_H
#define TESTS_TP_BATTERY_H
#include <sched.h>
#include <time.h>
#include "transport/tp.h"

enum { STREAM_ORDER, STREAM_REPORT, STREAM_STATE };       /* as the daemon uses them */

/* One check; every rank calls it at the same time. NULL, or the error on this rank. */
struct tp_check { const char *name; const char *(*run)(struct tp *t); };
/* Allocates buffers of transfers; device transports set their own functions, whose memory the host can also read. */
extern struct tp_battery_memory { void *(*take)(size_t bytes); void (*give)(void *p); } tp_battery_memory;
extern const struct tp_check tp_battery[];               /* ends with name NULL */

/* Between two polls of what other threads do: whoever waits long leaves them the cores. */
static inline void poll_again(unsigned tries)
{
    if (tries < 50) sched_yield();
    else nanosleep(&(struct timespec){.tv_nsec = 1000 * (tries < 300 ? tries : 300)}, NULL);
}

#endif
