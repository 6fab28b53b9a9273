/* Finished work and checkpoints, for the service manager (cluster/sd_notify.h), with the words of progress. */
#include <stdlib.h>
#include "cluster/sd_notify.h"
#include "report/progress.h"
#include "report/reporter.h"

static void words_add(const void *ctx, struct text *t) { progress_words(ctx, false, t); }
static void brief_add(const void *ctx, struct text *t) { progress_words(ctx, true, t); }

static int notify_on(void *self, const struct event *ev, struct err *e)
{
    const struct progress *p = self;
    (void)e;
    switch (ev->kind) {
    case EVENT_STEP: case EVENT_EVALUATION: case EVENT_ROLLBACK: break;
    case EVENT_BATCH: if (ev->result->last) return 0; break;
    case EVENT_TICK: if (ev->held) notify_paused((struct notify_status){brief_add, p}); return 0;
    case EVENT_CHECKPOINT: notify_checkpoint((uint64_t)ev->step); return 0;
    default: return 0;
    }
    notify_step(p->last_ns, (struct notify_status){words_add, p});
    return 0;
}

static int notify_begin(const struct report_run *q, void **self, struct err *e)
{
    (void)e;
    *self = reporters_find(q->all, "progress");
    return 0;
}

const struct reporter reporter_notify = {.name = "notify", .open = notify_begin, .on = notify_on};
