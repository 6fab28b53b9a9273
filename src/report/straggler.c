/* Finds ranks that became slow. */
#include <stdlib.h>
#include <string.h>
#include "cluster/heartbeat.h"
#include "cluster/log.h"
#include "report/plan_accuracy.h"
#include "report/reporter.h"
#include "report/straggler.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[STRAGGLER_FIRST > STRAGGLER_STEPS ? STRAGGLER_FIRST : STRAGGLER_STEPS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

/* Collects the first steps. False: all are collected. */
static bool learns(struct straggler *s, double busy_ns)
{
    if (s->n_first == STRAGGLER_FIRST) return false;
    if (s->warm) s->first[s->n_first++] = busy_ns;
    s->warm = true;
    if (s->n_first < STRAGGLER_FIRST) return true;
    s->usual_ns = median(s->first, STRAGGLER_FIRST);
    if (s->usual_ns < s->planned_ns) s->usual_ns = s->planned_ns;
    return true;
}

enum straggler_news straggler_step(struct straggler *s, uint64_t step, double busy_ns, double *times)
{
    if (learns(s, busy_ns)) return STRAGGLER_NONE;
    bool long_one = busy_ns > STRAGGLER_TIMES * s->usual_ns && busy_ns - s->usual_ns > STRAGGLER_WORTH_NS;
    if (long_one == s->slow) {
        s->in_row = 0;
        return STRAGGLER_NONE;
    }
    s->last[s->in_row++] = busy_ns;
    if (s->in_row < STRAGGLER_STEPS) return STRAGGLER_NONE;
    *times = s->usual_ns > 0 ? median(s->last, STRAGGLER_STEPS) / s->usual_ns : 0;
    s->in_row = 0;
    s->slow = long_one;
    if (long_one) s->since = step;
    return long_one ? STRAGGLER_SLOW : STRAGGLER_OVER;
}

/* ---- the reporter ------------------------------------------------------------------------------------------------ */

struct stragglers { struct report_run q; struct straggler of[]; };

static double busy_ns(const struct report *r)
{
    double sum = 0;
    for (int k = 0; k < ACC_COUNT; k++)
        if (k != ACC_WAIT_UP && k != ACC_WAIT_DOWN && k != ACC_TRANSFER && k != ACC_CHECKPOINT) sum += (double)r->ns[k];
    return sum;
}

static int straggler_tell(const struct stragglers *s, int64_t step, int rank, bool over, double times, struct err *e)
{
    char who[HEARTBEAT_WHO];
    heartbeat_who(rank, who);
    if (over) log_line("note: %s is no longer slow, since step %lld", who, (long long)step);
    else
        log_line("note: %s is slow: for %d steps it has been busy %.1f times as long as usual", who, STRAGGLER_STEPS,
                 times);
    return reporters_tell(s->q.all, &(struct event){.kind = EVENT_STRAGGLER, .step = step, .rank = rank, .who = who,
                          .factor = times, .over = over, .since = (int64_t)s->of[rank].since}, e);
}

static int stragglers_on(void *self, const struct event *ev, struct err *e)
{
    struct stragglers *s = self;
    const struct job *j = s->q.job;
    if (ev->kind != EVENT_STEP || (int)ev->result->o.plan != j->plan_of[PLAN_FULL]) return 0;
    for (int i = 0; i < job_world(j); i++) {
        double times = 0;
        enum straggler_news news = straggler_step(&s->of[i], (uint64_t)ev->step, busy_ns(&ev->result->rep[i]), &times);
        if (news != STRAGGLER_NONE && straggler_tell(s, ev->step, i, news == STRAGGLER_OVER, times, e)) return -1;
    }
    return 0;
}

static int stragglers_open(const struct report_run *q, void **self, struct err *e)
{
    const struct plan_accuracy *g = reporters_find(q->all, "plan_accuracy");
    int n = job_world(q->job);
    struct stragglers *s = *self = mem_alloc(sizeof *s + (size_t)n * sizeof *s->of);
    (void)e;
    s->q = *q;
    for (int i = 0; i < n; i++) s->of[i].planned_ns = plan_accuracy_planned_ns(g, job_coord(q->job, i).at[AXIS_PP]);
    return 0;
}

const struct reporter reporter_straggler = {.name = "straggler", .required = true, .open = stragglers_open,
                                            .on = stragglers_on, .close = free};
