#include <stdio.h>
#include <time.h>
#include "base/clock.h"

static uint64_t now(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_ns(void) { return now(CLOCK_MONOTONIC); }
uint64_t clock_thread_ns(void) { return now(CLOCK_THREAD_CPUTIME_ID); }
uint64_t clock_process_ns(void) { return now(CLOCK_PROCESS_CPUTIME_ID); }

int64_t clock_unix_ms(void) { return (int64_t)(now(CLOCK_REALTIME) / 1000000u); }
int64_t clock_unix_s(void) { return (int64_t)(now(CLOCK_REALTIME) / 1000000000u); }

char *clock_rfc3339(char buf[32])
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, 32 - n, ".%03ldZ", t.tv_nsec / 1000000);
    return buf;
}

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t ns)
{
    uint64_t until = clock_ns() + ns;
    struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    pthread_cond_timedwait(c, lock, &t);
}
