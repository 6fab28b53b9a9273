/* mpstagectl report: what became of the time of a run, over all its starts, from metrics.jsonl; no run is needed.
 *
 * Goodput is productive time divided by all time (Google Cloud, ML Productivity Goodput): steps that are part of the
 * run's history are productive; steps that a resume or a roll-back discarded, starts, checkpoints that steps wait for,
 * evaluations and the time between starts are not. */
#include <stdio.h>
#include <string.h>
#include "base/out.h"
#include "base/text.h"
#include "history.h"
#include "page.h"

static json_t *report_make(const struct history *h)
{
    double productive = 0, mfu = 0, wall = h->ended - h->began;
    for (int i = 0; i < h->steps.n; i++) {
        const struct history_step *s = &h->steps.v[i];
        productive += (double)s->n * s->seconds;
        mfu += (double)s->n * s->seconds * s->mfu;
    }
    mfu = productive > 0 ? mfu / productive : 0;
    json_t *o = json_pack("{s:I,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:f}", "steps", (json_int_t)h->at, "productive_seconds",
                          productive, "wall_seconds", wall, "goodput", wall > 0 ? productive / wall : 0, "starts",
                          (json_int_t)h->starts, "failures", (json_int_t)h->failures, "rollbacks",
                          (json_int_t)h->rollbacks, "lost_steps", (json_int_t)h->lost, "lost_seconds",
                          h->lost_seconds);
    if (mfu > 0) json_object_set_new(o, "mfu", json_real(mfu));
    return o;
}

static void report_print(const json_t *o)
{
    char productive[32], wall[32], lost[32];
    double mfu = ctl_number_of(o, "mfu");
    printf("%lld steps, productive %s of %s: goodput %.1f %%\n", ctl_integer_of(o, "steps"),
           text_seconds(ctl_number_of(o, "productive_seconds"), productive),
           text_seconds(ctl_number_of(o, "wall_seconds"), wall), 100 * ctl_number_of(o, "goodput"));
    printf("starts: %lld, failures: %lld, roll-backs: %lld; steps lost: %lld, %s\n", ctl_integer_of(o, "starts"),
           ctl_integer_of(o, "failures"), ctl_integer_of(o, "rollbacks"), ctl_integer_of(o, "lost_steps"),
           text_seconds(ctl_number_of(o, "lost_seconds"), lost));
    if (mfu > 0) printf("model FLOPs utilisation in steps: %.1f %%\n", 100 * mfu);
}

static int report_say(const struct history *h, const char *dir, bool json, struct err *e)
{
    if (!(h->began > 0)) return err_set(e, E_DATA, "%s/metrics.jsonl: no start of a run", dir);
    json_t *o = report_make(h);
    if (!o) return err_set(e, E_DATA, "%s/metrics.jsonl: numbers that are not finite", dir);
    if (json) ctl_json_print(o, false);
    else report_print(o);
    json_decref(o);
    return 0;
}

static int page_say(const struct history *h, const char *dir, const char *file, struct err *e)
{
    struct text t = {0};
    struct call c;
    struct html_page p = {.dir = dir, .h = h, .out = &t};
    struct err none = {0};
    int bad = 0;
    if (!call_open(&c, dir, &none)) p.running = call_runs(&c);
    call_close(&c);
    page_write(&p);
    if (strcmp(file, "-") != 0) bad = out_file_named(file, &t, false, e);
    else fwrite(t.s, 1, t.n, stdout);
    text_free(&t);
    return bad;
}

int ctl_report(const char *dir, bool json, const char *html)
{
    struct history h;
    struct err e = {0};
    int bad = history_read(dir, &h, &e);
    if (!bad) bad = html ? page_say(&h, dir, html, &e) : report_say(&h, dir, json, &e);
    history_free(&h);
    return bad ? ctl_fail(e.code, "%s", e.text) : ctl_output_end(0);
}
