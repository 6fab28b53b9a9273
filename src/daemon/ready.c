/* The progress line before there is progress. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/log.h"
#include "daemon/ready.h"

struct ready {
    const struct screen *screen;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    const char *doing;
    uint64_t since;
    bool end;
};

static void show(const struct ready *r)
{
    char line[200];
    int columns = screen_columns(r->screen);
    unsigned s = (unsigned)((clock_ns() - r->since) / 1000000000);
    if (columns > (int)sizeof line) columns = (int)sizeof line;
    if (columns && !s) snprintf(line, (size_t)columns, "%s ...", r->doing);
    else if (columns) snprintf(line, (size_t)columns, "%s ... %u:%02u:%02u", r->doing, s / 3600, s / 60 % 60, s % 60);
    log_progress(columns ? line : NULL);
}

static void *ready_main(void *arg)
{
    struct ready *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->end) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        if (r->doing) show(r);
        pthread_cond_timedwait(&r->wake, &r->lock, &until);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct ready *ready_begin(const struct screen *s)
{
    pthread_condattr_t monotonic;
    if (!screen_columns(s)) return NULL;
    struct ready *r = mem_alloc(sizeof *r);
    *r = (struct ready){.screen = s};
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&r->thread, NULL, ready_main, r) == 0) return r;
    pthread_cond_destroy(&r->wake);
    free(r);
    return NULL;
}

void ready_now(struct ready *r, const char *doing)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    if (r->doing != doing) {
        r->doing = doing;
        r->since = clock_ns();
        show(r);
    }
    pthread_mutex_unlock(&r->lock);
}

void ready_end(struct ready *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->end = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    log_progress(screen_columns(r->screen) ? "" : NULL);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
