/* The progress line of set-up, before the first step. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "cluster/log.h"
#include "report/setup_progress.h"

struct ready {
    const struct terminal *screen;
    void (*tick)(void);
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    const char *doing;
    uint64_t delay, began, since, note;                   /* note: when the next note is due if nobody watches */
    int done, all;                                        /* of plans; all 0: shows no count */
    bool end;
};

enum { TICK_S = 1 };
static const uint64_t FIRST_NOTE_NS = 2000000000, NEXT_NOTE_NS = 30000000000;

static void line_text(const struct ready *r, uint64_t now, char *buf, size_t n)
{
    char time[24];
    uint64_t s = (now - r->since) / 1000000000;
    int at = snprintf(buf, n, "%s ...", r->doing);
    if (r->all) at += snprintf(buf + at, n - (size_t)at, " %d of %d plans", r->done, r->all);
    if (s) snprintf(buf + at, n - (size_t)at, " %s", text_duration(s, time));
}

static void show(struct ready *r)
{
    char line[200];
    uint64_t now = clock_ns();
    int columns = terminal_columns(r->screen);
    line_text(r, now, line, sizeof line);
    if (columns && now - r->began < r->delay) return;
    if (columns && columns <= (int)sizeof line) line[columns - 1] = 0;
    log_progress(columns ? line : NULL);
    if (columns || now < r->note) return;
    log_line("note: still %s", line);
    r->note = now + NEXT_NOTE_NS;
}

static void *ready_main(void *arg)
{
    struct ready *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->end) {
        if (r->doing) show(r);
        if (r->tick) r->tick();
        clock_cond_wait(&r->wake, &r->lock, TICK_S * UINT64_C(1000000000));
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct ready *setup_progress_begin(const struct terminal *s, unsigned delay_s, void (*tick)(void))
{
    struct ready *r = mem_alloc(sizeof *r);
    *r = (struct ready){.screen = s, .tick = tick, .began = clock_ns(), .delay = delay_s * UINT64_C(1000000000)};
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->wake);
    if (pthread_create(&r->thread, NULL, ready_main, r) == 0) return r;
    pthread_cond_destroy(&r->wake);
    free(r);
    return NULL;
}

void setup_progress_now(struct ready *r, const char *doing)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    if (r->doing != doing) {
        r->doing = doing;
        r->since = clock_ns();
        r->note = r->since + FIRST_NOTE_NS;
        r->done = r->all = 0;
        show(r);
    }
    pthread_mutex_unlock(&r->lock);
}

void setup_progress_count(struct ready *r, int done, int all)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->done = done;
    r->all = all;
    pthread_mutex_unlock(&r->lock);
}

void setup_progress_end(struct ready *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->end = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    log_progress(terminal_columns(r->screen) ? "" : NULL);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
