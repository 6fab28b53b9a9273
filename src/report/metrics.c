/* metrics.jsonl. Lines are built in one growing buffer and written whole, so that a reader never sees half a line. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "config.h"
#include "base/clock.h"
#include "base/out.h"
#include "cluster/thread_liveness.h"
#include "report/metrics.h"

static const char file_name[] = "metrics.jsonl";

struct metrics {
    struct out_records file;
    const struct job *job;
    struct scores scores;
    struct text line;
    struct text held;                                     /* the last step's line, if it was not written */
    bool begun;                                           /* a step was written */
    uint64_t since;
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

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

static void add_seconds(struct text *t, const char *name, uint64_t ns)
{
    text_add(t, ",\"%s\":%llu.%09llu", name, (unsigned long long)(ns / 1000000000),
             (unsigned long long)(ns % 1000000000));
}

static void add_real(struct text *t, const char *name, double x)
{
    if (isfinite(x)) text_add(t, ",\"%s\":%.9g", name, x);
    else text_add(t, ",\"%s\":null", name);
}

/* Adds values as decimals, and for the loss also the bits, which show whether two runs are the same. */
static void add_scores(const struct metrics *m, struct text *t, const struct sums *s, bool test)
{
    for (int i = 0; i < m->scores.n; i++) {
        const struct score_style k = score_style(m->scores.of[i].name);
        double mean = score_mean(s->score, i);
        uint64_t bits;
        memcpy(&bits, &mean, sizeof bits);
        if (k.tests_only && !test) continue;
        add_real(t, k.key, mean);
        if (k.bits) text_add(t, ",\"%s_bits\":\"0x%016llx\"", k.key, (unsigned long long)bits);
    }
}

/* Adds the account of a rank, named by the first of its stages. */
static void add_rank(struct text *t, int stage, const struct report *r, uint64_t ns)
{
    uint64_t part[ACC_COUNT];
    double waited = account_of(r, ns, part);
    text_add(t, "%s{\"stage\":%d,\"rank\":%d", r->rank ? "," : "", stage, r->rank);
    for (int i = 0; i < ACC_COUNT; i++) add_seconds(t, account_name[i], part[i]);
    add_real(t, "bubble", waited);
    text_add(t, ",\"peak_bytes\":%llu}", (unsigned long long)r->allocated_bytes);
}

static bool is_turn(int64_t every, uint64_t step) { return every && step % (uint64_t)every == 0; }

/* Stores m->line as the held step, in place of the previous one. */
static int line_hold(struct metrics *m)
{
    struct text t = m->held;
    text_add(&m->line, "\n");
    m->held = m->line;
    m->line = t;
    return 0;
}

int metrics_step(struct metrics *m, const struct result *r, struct err *e)
{
    const struct conf *c = m->job->conf;
    bool first = !m->begun, held = !first && !is_turn(c->service.metrics_every, r->o.step);
    bool stages = first || is_turn(c->service.stages_every, r->o.step);
    struct text *t = &m->line;
    m->begun = true;
    m->held.n = 0;
    struct sums s = {0};
    sums_add(&s, r, job_world(m->job));
    t->n = 0;
    text_add(t, "{\"event\":\"step\",\"step\":%llu,\"epoch\":%llu", (unsigned long long)r->o.step,
             (unsigned long long)r->epoch);
    add_scores(m, t, &s, false);
    add_real(t, "lr", r->o.learning_rate);
    if (r->rep[0].grad_norm >= 0) add_real(t, "grad_norm", r->rep[0].grad_norm);
    text_add(t, ",\"samples\":%lld", (long long)s.samples);
    if (r->rep[0].nonfinite) text_add(t, ",\"skipped\":true");
    add_seconds(t, "step_seconds", r->ns);
    add_real(t, "samples_per_second", r->ns ? (double)s.samples * 1e9 / (double)r->ns : 0);
    text_add(t, "%s", stages ? ",\"stages\":[" : "");
    for (int i = 0; stages && i < job_world(m->job); i++)
        add_rank(t, job_stage(m->job, i), &r->rep[i], r->ns);
    text_add(t, stages ? "]}" : "}");
    return held ? line_hold(m) : line_write(m, false, e);
}

int metrics_evaluation(struct metrics *m, uint64_t step, uint64_t epoch, const struct sums *s, struct err *e)
{
    struct text *t = &m->line;
    t->n = 0;
    text_add(t, "{\"event\":\"evaluation\",\"step\":%llu,\"epoch\":%llu", (unsigned long long)step,
             (unsigned long long)epoch);
    add_scores(m, t, s, true);
    text_add(t, ",\"samples\":%lld", (long long)s->samples);
    add_seconds(t, "evaluation_seconds", s->ns);
    text_add(t, "}");
    return line_write(m, false, e);
}

int metrics_done(struct metrics *m, const struct done *d, struct err *e)
{
    struct text *t = &m->line;
    t->n = 0;
    text_add(t, "{\"event\":\"done\",\"steps\":%llu", (unsigned long long)d->steps);
    if (d->hash) text_add(t, ",\"weights_hash\":\"%s\"", d->hash);
    text_add(t, ",\"reason\":\"%s\",\"trained_samples\":%llu", d->reason, (unsigned long long)d->samples);
    add_seconds(t, "total_seconds", clock_ns() - m->since);
    text_add(t, "}");
    return line_write(m, true, e);
}

static int line_json(struct metrics *m, json_t *o, bool last, struct err *e)
{
    char *s = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    m->line.n = 0;
    text_add(&m->line, "%s", s ? s : "{}");
    free(s);
    return line_write(m, last, e);
}

static json_t *nonfinite_json(const struct metrics *m, const char *event, uint64_t step, int what)
{
    json_t *o = json_pack("{s:s,s:I,s:s}", "event", event, "step", (json_int_t)step, "nonfinite",
                          what == NONFINITE_LOSS ? "loss" : "gradient");
    if (what != NONFINITE_LOSS)
        json_object_set_new(o, "parameter", json_string(m->job->graph->param[what - NONFINITE_GRADIENT].name));
    return o;
}

int metrics_rollback(struct metrics *m, const struct rollback *b, struct err *e)
{
    json_t *o = nonfinite_json(m, "rollback", b->step, b->what);
    json_object_set_new(o, "to", json_integer((json_int_t)b->to));
    json_object_set_new(o, "position", json_integer((json_int_t)b->position));
    json_object_set_new(o, "times", json_integer((json_int_t)b->times));
    return line_json(m, o, false, e);
}

int metrics_skip(struct metrics *m, const struct result *r, uint64_t n, struct err *e)
{
    json_t *o = nonfinite_json(m, "skip", r->o.step, r->rep[0].nonfinite);
    json_object_set_new(o, "in_a_row", json_integer((json_int_t)n));
    return line_json(m, o, false, e);
}

int metrics_rerun(struct metrics *m, const struct result *r, struct err *e)
{
    const struct report *p = &r->rep[0];
    json_t *o = json_pack("{s:s,s:I,s:i}", "event", "rerun", "step", (json_int_t)r->o.step, "damaged", (int)p->damaged);
    if (p->damaged_from >= 0) {
        json_object_set_new(o, "from", json_integer(p->damaged_from));
        json_object_set_new(o, "to", json_integer(p->damaged_to));
    }
    return line_json(m, o, false, e);
}

int metrics_event(struct metrics *m, json_t *o, struct err *e) { return line_json(m, o, false, e); }

int metrics_failed(struct metrics *m, int code, const char *text, struct err *e)
{
    char clean[4 * sizeof e->text];                        /* file names may not be UTF-8, which JSON requires */
    text_printable(text, clean, sizeof clean);
    return line_json(m, json_pack("{s:s,s:i,s:s}", "event", "failed", "code", code, "text", clean), true, e);
}

/* had: the file has an earlier part of the run. A run may also continue after a user has removed that part, or start
 * again after it if there was no checkpoint. */
static int metrics_start(struct metrics *m, const struct metrics_head *h, bool had, struct err *e)
{
    bool resumes = had || h->from;
    char when[32], *conf = conf_json(m->job->conf);
    json_t *o = json_pack("{s:s,s:s,s:s,s:i,s:i,s:s,s:s,s:i}", "event", resumes ? "resume" : "start", "version",
                          PACKAGE_VERSION, "time",
                          clock_rfc3339(when),
                          "ranks", job_world(m->job), "stage_count", m->job->n_stages, "numerics", h->numerics,
                          "plan", h->plan, "pid", (int)getpid());
    if (resumes) json_object_set_new(o, "step", json_integer(h->from ? (json_int_t)h->from->step : 0));
    json_object_set_new(o, "libraries", json_pack("{s:s}", m->job->be->name, m->job->dev.library));
    json_object_set_new(o, "planned_steps", json_integer((json_int_t)job_steps(m->job)));
    json_t *c = json_loads(conf, 0, NULL);
    if (c) json_object_set_new(o, "config", c);
    free(conf);
    return line_json(m, o, false, e);
}

int metrics_open(int dirfd, const char *dir, const struct metrics_head *h, struct metrics **out, struct err *e)
{
    struct metrics *m = mem_alloc(sizeof *m);
    *m = (struct metrics){.job = h->job, .since = clock_ns()};
    graph_scores(h->job->graph, &m->scores);
    *out = m;
    bool had = false;
    return out_records_append(&m->file, dirfd, dir, file_name, &had, e) ? -1 : metrics_start(m, h, had, e);
}

int metrics_fd(const struct metrics *m) { return m->file.fd; }

void metrics_close(struct metrics *m)
{
    if (!m) return;
    out_records_close(&m->file);
    text_free(&m->line);
    text_free(&m->held);
    free(m);
}
