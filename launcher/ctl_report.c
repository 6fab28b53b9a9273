/* mpstagectl report: what became of the time of a run, over all its starts, from metrics.jsonl; no run is needed.
 *
 * Goodput is productive time divided by all time (Google Cloud, ML Productivity Goodput): steps that are part of the
 * run's history are productive; steps that a resume or a roll-back discarded, starts, checkpoints that steps wait for,
 * evaluations and the time between starts are not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/mem.h"
#include "base/text.h"
#include "ctl_say.h"

struct step_time { long long step; double seconds, mfu; };
struct history {
    VEC(struct step_time) steps;                          /* those that count, in order */
    long long starts, failures, rollbacks, lost;
    double lost_seconds, began, ended;                    /* began, ended: seconds since 1970 */
};

/* Later steps run again or never. */
static void steps_drop(struct history *h, long long after)
{
    for (; h->steps.n && h->steps.v[h->steps.n - 1].step > after; h->steps.n--) {
        h->lost++;
        h->lost_seconds += h->steps.v[h->steps.n - 1].seconds;
    }
}

static void start_take(struct history *h, const json_t *o)
{
    struct tm t = {0};
    const char *fraction = strptime(ctl_text_of(o, "time"), "%Y-%m-%dT%H:%M:%S", &t);
    if (!h->starts++ && fraction) h->began = (double)timegm(&t) + strtod(fraction, NULL);
    steps_drop(h, ctl_integer_of(o, "step"));             /* of a first start: 0 */
}

static void line_take(struct history *h, const char *line)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *event = ctl_text_of(o, "event");
    if (!strcmp(event, "start") || !strcmp(event, "resume")) start_take(h, o);
    else if (!strcmp(event, "step")) {
        steps_drop(h, ctl_integer_of(o, "step") - 1);
        *vec_push(&h->steps) = (struct step_time){ctl_integer_of(o, "step"), ctl_number_of(o, "step_seconds"),
                                                  ctl_number_of(o, "mfu")};
    } else if (!strcmp(event, "rollback")) {
        h->rollbacks++;
        steps_drop(h, ctl_integer_of(o, "to"));
    } else h->failures += !strcmp(event, "failed");
    json_decref(o);
}

static int history_read(const char *path, struct history *h, struct err *e)
{
    enum { MOST = 1 << 30 };
    struct stat st;
    struct text t = {0};
    if (text_read_file(&t, path, MOST, e)) return -1;
    if (stat(path, &st)) return err_set(e, E_NOINPUT, "%s: %s", path, strerror(errno));
    for (char *save = NULL, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        line_take(h, line);
    text_free(&t);
    h->ended = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
    return h->starts ? 0 : err_set(e, E_DATA, "%s: no start of a run", path);
}

static json_t *report_make(const struct history *h)
{
    double productive = 0, mfu = 0, wall = h->ended - h->began;
    long long last = 0;
    for (int i = 0; i < h->steps.n; i++) {
        last = h->steps.v[i].step;
        productive += h->steps.v[i].seconds;
        mfu += h->steps.v[i].seconds * h->steps.v[i].mfu;
    }
    mfu = productive > 0 ? mfu / productive : 0;
    if (h->steps.n) productive *= (double)last / h->steps.n;   /* service.metrics_every leaves lines out */
    json_t *o = json_pack("{s:I,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:f}", "steps", (json_int_t)last, "productive_seconds",
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

int ctl_report(const char *dir, bool json)
{
    struct history h = {.starts = 0};
    struct text path = {0};
    struct err e = {0};
    text_add(&path, "%s/metrics.jsonl", dir);
    int bad = history_read(path.s, &h, &e);
    json_t *o = bad ? NULL : report_make(&h);
    if (o && json) ctl_json_print(o, false);
    else if (o) report_print(o);
    json_decref(o);
    vec_free(&h.steps);
    text_free(&path);
    return bad ? ctl_fail(e.code, "%s", e.text) : ctl_output_end(0);
}
