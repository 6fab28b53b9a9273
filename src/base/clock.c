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
