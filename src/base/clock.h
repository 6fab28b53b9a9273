/* Monotonic time in nanoseconds. Any thread. Never wall-clock time: that may jump. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>
uint64_t clock_ns(void);
uint64_t clock_thread_ns(void);                           /* time that this thread has run so far */
/* Wall-clock time as RFC 3339 UTC with milliseconds, for logs and metrics. Returns buf. */
char *clock_rfc3339(char buf[32]);
#endif
