#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/log.h"
#include "report/data_report.h"
#include "report/reporter.h"

static void part_hello(const char *what, uint64_t count, const struct ds *d)
{
    enum { SHOWN = 6 };
    struct text t = {0};
    text_add(&t, "%llu %s samples of %lld class%s", (unsigned long long)count, what, (long long)d->n_classes,
             d->n_classes == 1 ? "" : "es");
    for (int64_t i = 0; d->class_name && i < d->n_classes && i < SHOWN; i++) {
        char name[64];
        text_add(&t, "%s%s", i ? ", " : ": ", text_printable(d->class_name[i], name, sizeof name));
    }
    if (d->class_name && d->n_classes > SHOWN) text_add(&t, " ...");
    log_line("%s", t.s);
    text_free(&t);
}

void data_report_warnings(const struct job *j, struct text *t)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        const char *s = j->data[part] && j->data[part]->warning ? j->data[part]->warning : "";
        for (int n; *s; s += n, s += *s == '\n') {
            struct text line = {0};
            n = (int)strcspn(s, "\n");
            text_add(&line, "warning: %.*s\n", n, s);
            if (!t->n || !strstr(t->s, line.s)) text_add(t, "%s", line.s); /* both parts may come from the same files */
            text_free(&line);
        }
    }
    const uint64_t train = j->count[DS_TRAIN], test = j->count[DS_TEST];
    if (j->conf->data.validation > 0 && train && test)
        text_add(t, "note: data.validation holds out %llu of %llu %s for tests\n", (unsigned long long)test,
                 (unsigned long long)(train + test), ds_epochs_of(j->data[DS_TRAIN]) ? "rows of records"
                 : j->data[DS_TRAIN]->kind->divides ? "records" : "samples");
}

void data_report_hello(const struct job *j)
{
    struct text t = {0};
    data_report_warnings(j, &t);
    for (char *save, *line = t.n ? strtok_r(t.s, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        log_line("%s", line);
    text_free(&t);
    static const char *const what[] = {[DS_TRAIN] = "training", [DS_TEST] = "test"};
    for (int part = DS_TRAIN; part <= DS_TEST; part++)
        if (j->data[part] && j->data[part]->n_classes) part_hello(what[part], j->count[part], j->data[part]);
}

/* ---- damaged samples --------------------------------------------------------------------------------------------- */

struct samples {
    struct report_run q;
    uint64_t skipped, reported; int64_t step; struct err first;
};

static int samples_tell(struct samples *s, struct err *e)
{
    s->reported = s->skipped;
    log_line("warning: %llu damaged sample%s skipped so far, replaced by others; the first: %s",
             (unsigned long long)s->skipped, s->skipped == 1 ? "" : "s", s->first.text);
    return reporters_tell(s->q.all, &(struct event){.kind = EVENT_DAMAGED, .step = s->step, .text = s->first.text,
                                                    .samples = (int64_t)s->skipped}, e);
}

/* Within a pipeline the rank with the highest count is used: one rank reads the pictures of a part, and others may find
 * the same damaged ones. Each pipeline reads its own part of every batch, so the counts of pipelines add up. */
static int result_take(struct samples *s, const struct result *r, struct err *e)
{
    const struct job *j = s->q.job;
    uint64_t all = 0;
    s->step = (int64_t)r->o.step;
    for (int dp = 0; dp < j->mesh.size[AXIS_DP]; dp++) {
        const struct report *most = NULL;
        for (int pp = 0; pp < j->mesh.size[AXIS_PP]; pp++) {
            const struct report *x = &r->rep[mesh_rank(&j->mesh, (struct mesh_coord){{pp, dp}})];
            if (!most || x->skipped > most->skipped) most = x;
        }
        if (most->skipped && !s->skipped && !all) s->first = most->first_skipped;
        all += most->skipped;
    }
    if (all > s->skipped) s->skipped = all;
    return s->skipped && s->skipped >= 2 * s->reported ? samples_tell(s, e) : 0;
}

/* Told the first time, each time the number has doubled, and at the end. */
static int samples_on(void *self, const struct event *ev, struct err *e)
{
    struct samples *s = self;
    if (ev->kind == EVENT_STEP || ev->kind == EVENT_BATCH) return result_take(s, ev->result, e);
    bool ends = ev->kind == EVENT_DONE || ev->kind == EVENT_FAILED;
    return ends && s->skipped > s->reported ? samples_tell(s, e) : 0;
}

static int samples_open(const struct report_run *q, void **self, struct err *e)
{
    struct samples *s = *self = mem_alloc(sizeof *s);
    (void)e;
    s->q = *q;
    return 0;
}

const struct reporter reporter_data_report = {.name = "data_report", .required = true, .open = samples_open,
                                              .on = samples_on, .close = free};
