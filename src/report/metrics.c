/* RUN/metrics.jsonl: one JSON object per line (mpstaged(8), METRICS), by the table of event.c. Lines are built in one
 * growing buffer and written whole, so that a reader never sees half a line. */
#include <stdlib.h>
#include "cluster/thread_liveness.h"
#include "report/reporter.h"

static const char file_name[] = "metrics.jsonl";

struct metrics {
    struct out_records file;
    const struct job *job;
    struct scores scores;
    struct text line;
    struct text held;                                     /* the last step's line, if it was not written */
    bool begun;                                           /* a step was written */
    bool had;                                             /* the file has an earlier part of the run */
};

/* Writes m->line, and before it the held step, so that the file has the last step before any other event. last: the
 * line about how the run ended; it may use space that is reserved for it on a full disk. */
static int line_write(struct metrics *m, bool last, struct err *e)
{
    const char *before = liveness_wait_file(file_name);
    text_add(&m->line, "\n");
    int bad = m->held.n && out_records_add(&m->file, m->held.s, m->held.n, last, e);
    if (!bad) m->held.n = 0;
    if (!bad) bad = out_records_add(&m->file, m->line.s, m->line.n, last, e);
    liveness_wait_file(before);
    return bad ? -1 : 0;
}

/* Stores m->line as the held step, in place of the previous one. */
static int line_hold(struct metrics *m)
{
    struct text t = m->held;
    text_add(&m->line, "\n");
    m->held = m->line;
    m->line = t;
    return 0;
}

static bool is_turn(int64_t every, int64_t step) { return every && step % every == 0; }

/* A run may also continue after a user has removed its earlier part, or start again after it if there was no
 * checkpoint. */
static int metrics_on(void *self, const struct event *ev, struct err *e)
{
    struct metrics *m = self;
    struct event one = *ev;
    bool held = false;
    if (ev->kind >= EVENT_LINES) return 0;
    if (ev->kind == EVENT_START && (m->had || ev->step >= 0)) {
        one.kind = EVENT_RESUME;
        if (ev->step < 0) one.step = 0;
    }
    if (ev->kind == EVENT_STEP) {
        const struct conf *c = m->job->conf;
        bool first = !m->begun;
        held = !first && !is_turn(c->service.metrics_every, ev->step);
        if (!first && !is_turn(c->service.stages_every, ev->step)) one.result = NULL;
        m->begun = true;
        m->held.n = 0;
    }
    m->line.n = 0;
    event_line(&one, m->job, &m->scores, &m->line);
    return held ? line_hold(m) : line_write(m, ev->kind == EVENT_FAILED || ev->kind == EVENT_DONE, e);
}

/* Appends to an existing file: rundir_make has removed one that must not be continued. */
static int metrics_open(const struct report_run *q, void **self, struct err *e)
{
    struct metrics *m = *self = mem_alloc(sizeof *m);
    m->job = q->job;
    graph_scores(q->job->graph, &m->scores);
    return out_records_append(&m->file, q->dir->fd, q->dir->path, file_name, &m->had, e);
}

static const struct out_records *metrics_file(const void *self) { return &((const struct metrics *)self)->file; }

static void metrics_close(void *self)
{
    struct metrics *m = self;
    out_records_close(&m->file);
    text_free(&m->line);
    text_free(&m->held);
    free(m);
}

const struct reporter reporter_metrics = {.name = "metrics", .required = true, .open = metrics_open, .on = metrics_on,
                                          .file = metrics_file, .close = metrics_close};
