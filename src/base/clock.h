/* Monotonic time in nanoseconds. Any thread. Wall-clock time, which may jump, is only for logs and for times that come
 * from elsewhere. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <pthread.h>
#include <stdint.h>
uint64_t clock_ns(void);
uint64_t clock_thread_ns(void);                           /* CPU time of this thread */
uint64_t clock_process_ns(void);                          /* CPU time of all threads of the process */
/* Wall-clock time as RFC 3339 UTC with milliseconds, for logs and metrics. Returns buf. */
char *clock_rfc3339(char buf[32]);

/* Seconds and milliseconds since 1970. */
int64_t clock_unix_s(void);
int64_t clock_unix_ms(void);

/* Initialises a condition whose waits use monotonic time. Default conditions use the wall clock: a change of the clock
 * ends their waits too early or too late. */
void clock_cond_init(pthread_cond_t *c);
/* Waits for a signal, for ns at most; may return early. The caller holds `lock`. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t ns);
#endif
