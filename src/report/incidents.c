/* Steps without an update, and steps that ran again: a line in the log and an event each. */
#include <stdio.h>
#include <stdlib.h>
#include "cluster/log.h"
#include "report/reporter.h"

struct incidents { struct report_run q; uint64_t in_a_row; };

/* With train.nonfinite = skip. Otherwise the run ends or rolls back (coordinator.c, loop_rollback.c). */
static int skip_tell(const struct incidents *s, const struct result *r, struct err *e)
{
    const struct job *j = s->q.job;
    char what[300];
    struct event skip = {.kind = EVENT_SKIP, .step = (int64_t)r->o.step, .in_a_row = (int64_t)s->in_a_row};
    event_nonfinite(&skip, j->graph, r->rep[0].nonfinite);
    log_line("step %llu is skipped: %s is not finite", (unsigned long long)r->o.step,
             nonfinite_text(j->graph, r->rep[0].nonfinite, what, sizeof what));
    return reporters_tell(s->q.all, &skip, e);
}

static int rerun_tell(const struct incidents *s, const struct result *r, struct err *e)
{
    const struct report *p = &r->rep[0];
    bool known = p->damaged_from >= 0;
    char link[64] = "";
    if (known) snprintf(link, sizeof link, " from rank %d to rank %d", p->damaged_from, p->damaged_to);
    log_line("warning: step %llu was repeated: %d tensor%s corrupted in transfer%s; suspect the memory or the network",
             (unsigned long long)r->o.step, p->damaged, p->damaged == 1 ? "" : "s", link);
    return reporters_tell(s->q.all, &(struct event){.kind = EVENT_RERUN, .step = (int64_t)r->o.step,
                          .damaged = p->damaged, .from = known ? p->damaged_from : -1,
                          .to = known ? p->damaged_to : -1}, e);
}

static int incidents_on(void *self, const struct event *ev, struct err *e)
{
    struct incidents *s = self;
    if (ev->kind != EVENT_STEP) return 0;
    const struct report *p = &ev->result->rep[0];
    s->in_a_row = p->nonfinite ? s->in_a_row + 1 : 0;
    bool skips = p->nonfinite && s->q.job->conf->train.nonfinite == NONFINITE_SKIP;
    if (skips && skip_tell(s, ev->result, e)) return -1;
    return p->damaged ? rerun_tell(s, ev->result, e) : 0;
}

static int incidents_open(const struct report_run *q, void **self, struct err *e)
{
    struct incidents *s = *self = mem_alloc(sizeof *s);
    (void)e;
    *s = (struct incidents){*q, q->from ? q->from->skipped : 0};
    return 0;
}

const struct reporter reporter_incidents = {.name = "incidents", .required = true, .open = incidents_open,
                                            .on = incidents_on, .close = free};
