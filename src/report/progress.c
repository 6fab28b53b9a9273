/* Shows progress to people. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cluster/log.h"
#include "report/progress.h"
#include "report/reporter.h"

static int progress_open(const struct report_run *q, void **self, struct err *e)
{
    const struct job *j = q->job;
    uint64_t now = clock_ns();
    struct progress *p = *self = mem_alloc(sizeof *p);
    (void)e;
    *p = (struct progress){.job = j, .conf = j->conf, .screen = q->screen, .began = now, .heard = now,
                           .columns = terminal_columns(q->screen),
                           .part = mem_alloc((size_t)job_world(j) * ACC_COUNT * sizeof *p->part),
                           .bytes = mem_alloc((size_t)job_world(j) * sizeof *p->bytes)};
    graph_scores(j->graph, &p->scores);
    return 0;
}

/* The time for the remaining steps, and for the rest of a running evaluation. */
static double eta_seconds(const struct progress *p)
{
    double eta = 0;
    if (p->done && p->step < p->steps)
        eta = (double)p->seconds_ns * 1e-9 / (double)p->done * (double)(p->steps - p->step);
    if (p->test_done) eta += (double)p->test_ns * 1e-9 / (double)p->test_done * (double)(p->test_all - p->test_done);
    return eta;
}

/* Before the first batch of the last evaluation has ended, its time is unknown. */
static bool eta_known(const struct progress *p) { return p->test_done || (p->done && p->step < p->steps); }

/* ---- the progress line ------------------------------------------------------------------------------------------- */

/* Most important first. F_TEST: of the last evaluation, on a terminal. F_SCORES: all scores except the first. */
enum { F_STEP, F_LOSS, F_NOW, F_ETA, F_RATE, F_TEST, F_EPOCH, F_SCORES, FIELDS = F_SCORES + MAX_SCORES - 1 };
struct fields { char text[FIELDS][64]; };

/* The field at position i. */
static int field_at(int i)
{
    static const int before[] = {F_STEP, F_EPOCH, F_LOSS}, after[] = {F_TEST, F_RATE, F_ETA, F_NOW};
    enum { FIRST = 3, LAST = FIRST + MAX_SCORES - 1 };
    return i < FIRST ? before[i] : i < LAST ? F_SCORES + i - FIRST : after[i - LAST];
}

static char *duration(uint64_t ns, char buf[24]) { return text_duration(ns / 1000000000, buf); }

/* The leading score. brief: without its name. */
static void test_fill(const struct progress *p, bool brief, char text[64])
{
    const int i = scores_leading(&p->scores);
    struct score_style k = score_style(p->scores.of[i].name);
    char score[56];
    score_print(&k, p->test_score[i], SCORE_BRIEF, score, sizeof score);
    size_t n = strlen(score);
    while (n && score[n - 1] == ' ') n--;
    size_t from = n;
    while (from && score[from - 1] != ' ') from--;
    if (!brief) from = 0;
    snprintf(text, 64, "test %.*s", (int)(n - from), score + from);
}

/* Batches that a roll-back skipped may take a run beyond its epochs. */
static void epoch_fill(const struct progress *p, char text[64])
{
    char all[24];
    int digits = snprintf(all, sizeof all, "%llu", (unsigned long long)p->epochs);
    if (p->epoch > p->epochs) snprintf(text, 64, "epoch %llu", (unsigned long long)p->epoch);
    else snprintf(text, 64, "epoch %*llu/%s", digits, (unsigned long long)p->epoch, all);
}

/* Fields are padded so that they keep their position from step to step. */
static void fields_fill(const struct progress *p, uint64_t now, bool brief, struct fields *f)
{
    enum { LONG_STEP_NS = 2000000000 };
    char t[24], steps[24];
    int digits = snprintf(steps, sizeof steps, "%llu", (unsigned long long)p->steps);
    memset(f, 0, sizeof *f);
    snprintf(f->text[F_STEP], 64, "step %*llu/%s", digits, (unsigned long long)p->step, steps);
    epoch_fill(p, f->text[F_EPOCH]);
    for (int i = 0, at = F_LOSS; i < p->scores.n; i++) {
        struct score_style k = score_style(p->scores.of[i].name);
        if (k.tests_only) continue;
        score_print(&k, p->score[i], brief ? SCORE_BRIEF : SCORE_STEP, f->text[at], 64);
        at = at == F_LOSS ? F_SCORES : at + 1;
    }
    if (p->tested && p->columns && p->scores.n) test_fill(p, brief, f->text[F_TEST]);
    snprintf(f->text[F_RATE], 64, p->rate < 1000 ? "%5.4g%s" : "%5.0f%s", p->rate, brief ? "/s" : " samples/s");
    snprintf(f->text[F_ETA], 64, "ETA %s", text_duration((uint64_t)eta_seconds(p), t));
    if (p->paused) snprintf(f->text[F_NOW], 64, "paused");
    else if (p->step < p->steps && now - p->heard >= LONG_STEP_NS)
        snprintf(f->text[F_NOW], 64, brief ? "now %s" : "this step %s", duration(now - p->heard, t));
}

/* Joins the n most important fields in display order. Returns the columns of the line. */
static int fields_join(const struct fields *f, int n, char *buf, size_t size)
{
    int at = 0;
    *buf = 0;
    for (int i = 0; i < FIELDS; i++) {
        const char *s = f->text[field_at(i)];
        if (field_at(i) >= n || !*s) continue;
        at += snprintf(buf + at, (size_t)at < size ? size - (size_t)at : 0, "%s%s", at ? "  " : "", s);
        if ((size_t)at >= size) return at;
    }
    return at;
}

/* Shortens texts if the line and `space` do not fit, then leaves out the least important fields. */
static void step_fit(const struct progress *p, uint64_t now, int columns, int space, char *buf, size_t n)
{
    struct fields f;
    fields_fill(p, now, false, &f);
    if (fields_join(&f, FIELDS, buf, n) + (*f.text[F_NOW] ? 0 : space) <= columns) return;
    fields_fill(p, now, true, &f);
    for (int most = FIELDS; most > 0; most--) if (fields_join(&f, most, buf, n) <= columns) return;
}

static void step_line(const struct progress *p, uint64_t now, int columns, char *buf, size_t n)
{
    enum { RESERVED = 19 };                                   /* for " this step 0:00:42", which is not always shown */
    step_fit(p, now, columns, RESERVED, buf, n);
}

void progress_line(const struct progress *p, uint64_t now, int columns, char *buf, size_t n)
{
    char t[24], u[24];
    if (p->test_done)
        snprintf(buf, n, "evaluating %llu/%llu samples  ETA %s", (unsigned long long)p->test_done,
                 (unsigned long long)p->test_all, text_duration((uint64_t)eta_seconds(p), t));
    else if (p->step) step_line(p, now, columns, buf, n);
    else if (p->steps)
        snprintf(buf, n, "step 1/%llu is running, %s", (unsigned long long)p->steps, duration(now - p->began, u));
    else snprintf(buf, n, "evaluating, %s", duration(now - p->began, u));
    if (columns >= 0 && (size_t)columns < n) buf[columns] = 0;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void step_take(struct progress *p, const struct result *r, const struct sums *s)
{
    double n = s->samples ? (double)s->samples : 1, seconds = (double)r->ns * 1e-9;
    int64_t every = p->conf->service.log_every;
    p->step = r->o.step;
    p->epoch = r->epoch;
    for (int i = 0; i < p->scores.n; i++) p->score[i] = score_mean(s->score, i);
    p->samples += (uint64_t)s->samples;
    p->done++;
    p->seconds_ns += r->ns;
    double now = seconds > 0 ? n / seconds : 0;
    p->step_ns = p->last_ns = r->ns;
    for (int i = 0; i < job_world(p->job); i++) {
        account_of(&r->rep[i], r->ns, p->part + i * ACC_COUNT);
        p->bytes[i] = r->rep[i].allocated_bytes;
    }
    p->rate = p->rate > 0 ? 0.9 * p->rate + 0.1 * now : now;
    p->heard = clock_ns();
    if (p->columns || every <= 0) return;
    if (p->step % (uint64_t)every && p->step != 1 && p->step != p->steps) return;
    char line[240];
    step_fit(p, p->heard, SCREEN_COLUMNS, 0, line, sizeof line);
    log_line("%s", line);
}

static void batch_take(struct progress *p, const struct sums *s)
{
    if (!p->test_done)
        log_line("%s %llu test samples", p->job->conf->run.predict ? "predicting" : "evaluating",
                 (unsigned long long)p->job->count[DS_TEST]);
    p->last_ns = s->ns - (p->test_done ? p->test_ns : 0);
    p->test_done = (uint64_t)s->samples;
    p->test_all = p->job->count[DS_TEST];
    p->test_ns = s->ns;
    p->heard = clock_ns();
}

static void evaluation_take(struct progress *p, const struct event *ev)
{
    const struct sums *s = ev->sums;
    const long long step = ev->step;
    struct text t = {0};
    char score[64];
    p->tested = true;
    p->heard = clock_ns();
    p->test_done = 0;
    for (int i = 0; i < p->scores.n; i++) {
        struct score_style k = score_style(p->scores.of[i].name);
        p->test_score[i] = score_mean(s->score, i);
        score_print(&k, p->test_score[i], SCORE_TEST, score, sizeof score);
        text_add(&t, "%s%s", i ? "  " : "", score);
    }
    if (ev->perplexity >= 0) text_add(&t, "  perplexity %.4g", ev->perplexity);
    if (ev->bits_per_byte >= 0) text_add(&t, "  %.4f bits a byte", ev->bits_per_byte);
    if (terminal_columns(p->screen)) log_progress("");
    char after[40] = "";
    if (step) snprintf(after, sizeof after, " after step %lld", step);
    log_line("evaluation of %lld samples%s: %s", (long long)s->samples, after, t.n ? t.s : "");
    text_free(&t);
}

/* Leaves the last column free: some terminals wrap when it is written. */
static void line_show(struct progress *p)
{
    char line[240];
    p->columns = terminal_columns(p->screen);
    log_columns(p->columns);
    if (p->columns) progress_line(p, clock_ns(), p->columns - 1, line, sizeof line);
    log_progress(p->columns ? line : NULL);
}

/* The last lines. */
static void end_show(struct progress *p, const char *summary)
{
    char line[240];
    int columns = terminal_columns(p->screen);
    log_progress(columns ? "" : NULL);
    if (columns && p->step) {
        step_line(p, p->heard, columns - 1, line, sizeof line);
        log_line("%s", line);
    }
    struct text t = {0};
    text_add(&t, "%s", summary ? summary : "");
    log_lines(t.s);
    text_free(&t);
}

static json_t *account_json(const struct progress *p)
{
    json_t *all = json_array();
    for (int i = 0; i < job_world(p->job); i++) {
        json_t *o = json_pack("{s:i,s:i}", "stage", job_stage(p->job, i), "rank", i);
        if (p->job->mesh.size[AXIS_DP] > 1)
            json_object_set_new(o, axis_word[AXIS_DP], json_integer(job_coord(p->job, i).at[AXIS_DP]));
        for (int k = 0; k < ACC_COUNT; k++)
            json_object_set_new(o, account_name[k], json_real((double)p->part[i * ACC_COUNT + k] * 1e-9));
        const uint64_t *part = p->part + i * ACC_COUNT;
        double waited = p->step_ns ? (double)(part[ACC_WAIT_UP] + part[ACC_WAIT_DOWN]) / (double)p->step_ns : 0;
        json_object_set_new(o, "bubble", json_real(waited));
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)p->bytes[i]));
        json_array_append_new(all, o);
    }
    return all;
}

uint64_t progress_idle_ns(const struct progress *p, uint64_t now)
{
    enum { TIMES = 5 };
    const uint64_t LEAST = 2000000000;
    uint64_t usual = p->done ? p->seconds_ns / p->done : 0, doubt = TIMES * (usual > p->last_ns ? usual : p->last_ns);
    if (doubt < LEAST) doubt = LEAST;
    return now - p->heard >= doubt && !p->paused ? now - p->heard : 0;
}

/* Adds each score under its key, and all as one text for people. The text about a test leaves out the first score if
 * there are others. */
static void scores_json(const struct progress *p, bool test, json_t *o)
{
    const double *x = test ? p->test_score : p->score;
    struct text all = {0};
    char key[80], score[64];
    for (int i = 0; i < p->scores.n; i++) {
        struct score_style k = score_style(p->scores.of[i].name);
        if (k.tests_only) continue;
        snprintf(key, sizeof key, "%s%s", test ? "test_" : "", k.key);
        if (isfinite(x[i])) json_object_set_new(o, key, json_real(x[i]));
        if (!isfinite(x[i]) || (test && i == 0 && p->scores.n > 1)) continue;
        int n = score_print(&k, x[i], test ? SCORE_TEST : SCORE_STEP, score, sizeof score);
        while (n > 0 && (size_t)n < sizeof score && score[n - 1] == ' ') score[--n] = 0;
        text_add(&all, "%s%s%s", all.n ? ", " : "", test ? "test " : "", score);
    }
    if (all.n) json_object_set_new(o, test ? "test_scores" : "scores", json_string(all.s));
    text_free(&all);
}

void progress_json(const struct progress *p, bool awaited, json_t *o)
{
    uint64_t now = clock_ns(), idle = awaited ? progress_idle_ns(p, now) : 0;
    json_object_set_new(o, "epoch", json_integer((json_int_t)p->epoch));
    if (p->epochs) json_object_set_new(o, "epochs", json_integer((json_int_t)p->epochs));
    if (p->step) {
        scores_json(p, false, o);
        if (!idle) json_object_set_new(o, "samples_per_second", json_real(p->rate));
        json_object_set_new(o, "step_seconds", json_real((double)p->step_ns * 1e-9));
        json_object_set_new(o, "account", account_json(p));
    }
    if (idle) json_object_set_new(o, "idle_seconds", json_real(floor((double)idle * 1e-9)));
    else if (eta_known(p)) json_object_set_new(o, "eta_seconds", json_real(floor(eta_seconds(p))));
    if (p->test_done) {
        json_object_set_new(o, "evaluated_samples", json_integer((json_int_t)p->test_done));
        json_object_set_new(o, "evaluation_samples", json_integer((json_int_t)p->test_all));
    }
    if (p->tested) scores_json(p, true, o);
    json_object_set_new(o, "uptime_seconds", json_real((double)((now - p->began) / 1000000) / 1000));
}

void progress_words(const struct progress *p, bool brief, struct text *t)
{
    if (p->test_done && !brief)
        text_add(t, "evaluating %llu/%llu samples after step %llu", (unsigned long long)p->test_done,
                 (unsigned long long)p->test_all, (unsigned long long)p->step);
    else if (!p->steps) text_add(t, p->tested ? "evaluated" : "evaluating");
    else {
        text_add(t, "step %llu/%llu", (unsigned long long)p->step, (unsigned long long)p->steps);
        if (p->step && p->scores.n)
            text_add(t, ", %s %.5g", score_style(p->scores.of[0].name).text, p->score[0]);
        if (p->step && p->rate > 0) text_add(t, p->rate < 1000 ? ", %.4g samples/s" : ", %.0f samples/s", p->rate);
    }
}

/* The beginning of a text of generate.every_steps. */
static void generated_log(const struct event *ev)
{
    enum { MOST = 240 };
    const json_t *of = json_object_get(ev->json, "text");
    const char *s = json_string_value(of), *reason = json_string_value(json_object_get(ev->json, "reason"));
    size_t n = json_string_length(of), most = n < MOST ? n : MOST;
    char clean[4 * MOST + 1];
    struct text start = {0}, shown = {0};
    while (n > most && ((unsigned char)s[most] & 0xc0) == 0x80) most--;   /* not within a character */
    text_add(&start, "%s", "");
    if (s) text_add_bytes(&start, s, most);
    for (size_t at = 0; at <= most; at += strlen(start.s + at) + 1)       /* it may have NULs */
        text_add(&shown, "%s%s", at ? "\\x00" : "", text_printable(start.s + at, clean, sizeof clean));
    log_line("step %lld, prompt %lld: %s%s%s", (long long)ev->step,
             (long long)json_integer_value(json_object_get(ev->json, "index")),
             s ? shown.s : "no tokenizer, so only ids", n > MOST ? " ..." : "",
             reason && !strcmp(reason, "nonfinite") ? " (the logits that follow are not finite)" : "");
    text_free(&start);
    text_free(&shown);
}

/* The wait for a result starts after a pause. */
static int progress_on(void *self, const struct event *ev, struct err *e)
{
    struct progress *p = self;
    (void)e;
    switch (ev->kind) {
    case EVENT_PLANNED:
        p->steps = (uint64_t)ev->step;
        p->epochs = job_epochs(p->job, p->steps);
        break;
    case EVENT_STEP: step_take(p, ev->result, ev->sums); break;
    case EVENT_BATCH: if (!ev->result->last) batch_take(p, ev->sums); break;
    case EVENT_EVALUATION: evaluation_take(p, ev); break;
    case EVENT_PREDICTION: p->test_done = 0; break;
    case EVENT_GENERATED: p->heard = clock_ns(); generated_log(ev); break;
    case EVENT_GENERATION:
        p->heard = clock_ns();
        log_line("generated %lld tokens after %lld prompt%s: %.4g tokens/s", (long long)ev->tokens,
                 (long long)ev->prompts, ev->prompts == 1 ? "" : "s", ev->tokens_per_second);
        break;
    case EVENT_ROLLBACK: p->step = (uint64_t)ev->to; p->heard = clock_ns(); break;
    case EVENT_PAUSING: case EVENT_PAUSE: p->paused = ev->kind == EVENT_PAUSING; p->heard = clock_ns(); break;
    case EVENT_RELOAD: p->conf = ev->conf; break;
    case EVENT_TICK: line_show(p); break;
    case EVENT_STATUS: progress_json(p, !ev->held, ev->json); break;
    case EVENT_END: end_show(p, ev->text); break;
    default: break;
    }
    return 0;
}

static void progress_close(void *self)
{
    struct progress *p = self;
    free(p->part);
    free(p->bytes);
    free(p);
}

const struct reporter reporter_progress = {.name = "progress", .open = progress_open, .on = progress_on,
                                           .close = progress_close};
