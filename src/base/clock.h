/* Monotonic time in nanoseconds. Any thread. Never wall-clock time: that may jump. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <pthread.h>
#include <stdint.h>
uint64_t clock_ns(void);
uint64_t clock_thread_ns(void);                           /* time that this thread has run so far */
uint64_t clock_process_ns(void);                          /* the same of all threads together */
/* Wall-clock time as RFC 3339 UTC with milliseconds, for logs and metrics. Returns buf. */
char *clock_rfc3339(char buf[32]);

/* A condition whose waits end by monotonic time; others end late, or at once, when somebody sets the clock. */
void clock_cond_init(pthread_cond_t *c);
/* Waits for a signal, for ns at most; may return early. With `lock` held. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t ns);
#endif
