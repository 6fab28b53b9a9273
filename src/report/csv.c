/* RUN/metrics.csv (service.csv): a row for each step with the numbers of the event, for spreadsheets and data frames.
 * Where steps run again, after a resume or a roll-back, the rows of their first time are removed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cluster/thread_liveness.h"
#include "report/reporter.h"

static const char file_name[] = "metrics.csv";

struct csv { struct out_records file; struct scores scores; struct text row; };

static const struct event_field *fields(void) { return event_rows[EVENT_STEP].field; }

/* Columns are the same in all rows: what a line of metrics.jsonl leaves out is empty here. */
static void header_add(const struct csv *c, struct text *t)
{
    for (const struct event_field *f = fields(); f->key; f++) {
        bool number = f->type <= FIELD_BOOL;
        if (number) text_add(t, "%s%s", t->n ? "," : "", f->key);
        for (int i = 0; f->type == FIELD_SCORES && i < c->scores.n; i++) {
            const struct score_style k = score_style(c->scores.of[i].name);
            if (!k.tests_only) text_add(t, ",%s", k.key);
        }
    }
    text_add(t, "\n");
}

static void cell_add(const struct csv *c, const struct event *ev, const struct event_field *f, struct text *t)
{
    const void *at = (const char *)ev + f->at;
    const bool measured = f->type == FIELD_REAL || f->type == FIELD_EXACT;
    double real = measured || f->type == FIELD_NUMBER ? *(const double *)at : 0;
    int64_t whole = f->type == FIELD_WHOLE ? *(const int64_t *)at : f->type == FIELD_FLAG || f->type == FIELD_BOOL ?
                                                                        *(const bool *)at : -1;
    if (f->type <= FIELD_BOOL && t->n) text_add(t, ",");
    if (whole >= 0) text_add(t, "%" PRId64, whole);
    if (f->type == FIELD_NUMBER || (measured && real >= 0)) text_add(t, "%.9g", real);
    if (f->type == FIELD_SECONDS) text_add(t, "%.9f", (double)*(const uint64_t *)at * 1e-9);
    for (int i = 0; f->type == FIELD_SCORES && i < c->scores.n; i++) {
        double mean = score_mean(ev->sums->score, i);
        if (score_style(c->scores.of[i].name).tests_only) continue;
        text_add(t, isfinite(mean) ? ",%.9g" : ",", mean);
    }
}

static int row_write(struct csv *c, struct err *e)
{
    const char *before = liveness_wait_file(file_name);
    int bad = out_records_add(&c->file, c->row.s, c->row.n, false, e);
    liveness_wait_file(before);
    return bad;
}

static bool is_later(void *ctx, const char *row, bool first)
{
    const bool step = *row >= '0' && *row <= '9';
    return !first && (!step || strtoull(row, NULL, 10) > *(const uint64_t *)ctx);
}

/* Removes the rows of later steps. */
static int rows_cut(struct csv *c, uint64_t step, struct err *e)
{
    return out_records_cut(&c->file, is_later, &step, e);
}

/* The file goes on only with the columns that it has. */
static int header_check(struct csv *c, struct err *e)
{
    char had[4096];
    ssize_t n = pread(c->file.fd, had, c->row.n < sizeof had ? c->row.n : sizeof had, 0);
    if (n == (ssize_t)c->row.n && !memcmp(had, c->row.s, c->row.n)) return 0;
    return err_set(e, E_CANTCREAT, "%s: has other columns; rename it to continue", c->file.path);
}

static int csv_open(const struct report_run *q, void **self, struct err *e)
{
    const struct conf *conf = q->job->conf;
    bool had;
    if (!conf->service.csv || conf->run.evaluate) return 0;
    struct csv *c = *self = mem_alloc(sizeof *c);
    graph_scores(q->job->graph, &c->scores);
    header_add(c, &c->row);
    if (out_records_append(&c->file, q->dir->fd, q->dir->path, file_name, &had, e)) return -1;
    if (!c->file.size) return row_write(c, e);
    return header_check(c, e) || rows_cut(c, q->from ? q->from->step : 0, e) ? -1 : 0;
}

static int csv_on(void *self, const struct event *ev, struct err *e)
{
    struct csv *c = self;
    if (ev->kind == EVENT_ROLLBACK) return rows_cut(c, (uint64_t)ev->to, e);
    if (ev->kind != EVENT_STEP) return 0;
    c->row.n = 0;
    for (const struct event_field *f = fields(); f->key; f++) cell_add(c, ev, f, &c->row);
    text_add(&c->row, "\n");
    return row_write(c, e);
}

static const struct out_records *csv_file(const void *self) { return &((const struct csv *)self)->file; }

static void csv_close(void *self)
{
    struct csv *c = self;
    out_records_close(&c->file);
    text_free(&c->row);
    free(c);
}

const struct reporter reporter_csv = {.name = "csv", .required = true, .open = csv_open, .on = csv_on,
                                      .file = csv_file, .close = csv_close};
