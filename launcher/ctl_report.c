/* mpstagectl report: what became of the time of a run, over all its starts, from metrics.jsonl; no run is needed.
 *
 * Goodput is productive time divided by all time (Google Cloud, ML Productivity Goodput): steps that are part of the
 * run's history are productive; steps that a resume or a roll-back discarded, starts, checkpoints that steps wait for,
 * evaluations and the time between starts are not. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "ctl_say.h"

/* n: steps since the line before, which service.metrics_every may leave out. */
struct step_time { long long step, n; double seconds, mfu; };
struct history {
    VEC(struct step_time) steps;                          /* those that count, in order */
    long long at;                                         /* the step before the next line's */
    long long starts, failures, rollbacks, lost;          /* a start without an end is a failure once another follows */
    bool runs;
    double lost_seconds, began, ended;                    /* began, ended: seconds since 1970 */
};

/* The steps after that one run again or never. */
static void history_go(struct history *h, long long to)
{
    while (h->steps.n && h->steps.v[h->steps.n - 1].step > to) {
        struct step_time *s = &h->steps.v[h->steps.n - 1];
        long long lost = s->step - to < s->n ? s->step - to : s->n;
        h->lost += lost;
        h->lost_seconds += (double)lost * s->seconds;
        s->step -= lost;
        s->n -= lost;
        if (!s->n) h->steps.n--;
    }
    h->at = to;
}

static void start_take(struct history *h, const json_t *o)
{
    struct tm t = {0};
    const char *fraction = strptime(ctl_text_of(o, "time"), "%Y-%m-%dT%H:%M:%S", &t);
    if (!h->starts++ && fraction) h->began = (double)timegm(&t) + strtod(fraction, NULL);
    history_go(h, ctl_integer_of(o, "step"));             /* of a first start: 0 */
}

static void step_take(struct history *h, const json_t *o)
{
    long long step = ctl_integer_of(o, "step"), n = step > h->at ? step - h->at : 1;
    *vec_push(&h->steps) = (struct step_time){step, n, ctl_number_of(o, "step_seconds"), ctl_number_of(o, "mfu")};
    h->at = step;
}

static void line_take(struct history *h, const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *event = ctl_text_of(o, "event");
    const bool starts = !strcmp(event, "start") || !strcmp(event, "resume"), fails = !strcmp(event, "failed");
    h->failures += fails || (starts && h->runs);
    h->runs = starts || (h->runs && !fails && strcmp(event, "done"));
    if (starts) start_take(h, o);
    else if (!strcmp(event, "step")) step_take(h, o);
    else if (!strcmp(event, "rollback")) {
        h->rollbacks++;
        history_go(h, ctl_integer_of(o, "to"));
    }
    json_decref(o);
}

/* Takes all whole lines of a piece, and keeps the rest. */
static void piece_take(struct history *h, struct text *t)
{
    char *at = t->s, *end;
    while ((end = memchr(at, '\n', (size_t)(t->s + t->n - at)))) {
        line_take(h, at, (size_t)(end - at));
        at = end + 1;
    }
    t->n = (size_t)(t->s + t->n - at);
    memmove(t->s, at, t->n + 1);
}

static int history_read(const char *path, struct history *h, struct err *e)
{
    enum { PIECE = 1 << 20 };
    struct stat st;
    struct text t = {0};
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) err_set(e, E_NOINPUT, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) err_set(e, E_DATA, "%s: is no file", path);
    char *piece = e->code ? NULL : mem_alloc(PIECE);
    while (piece && (n = read(fd, piece, PIECE)) > 0) {
        text_add_bytes(&t, piece, (size_t)n);
        piece_take(h, &t);
    }
    if (piece && n < 0) err_set(e, E_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(piece);
    text_free(&t);
    if (e->code) return -1;
    h->ended = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
    return h->began > 0 ? 0 : err_set(e, E_DATA, "%s: no start of a run", path);
}

static json_t *report_make(const struct history *h)
{
    double productive = 0, mfu = 0, wall = h->ended - h->began;
    for (int i = 0; i < h->steps.n; i++) {
        const struct step_time *s = &h->steps.v[i];
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

int ctl_report(const char *dir, bool json)
{
    struct history h = {.starts = 0};
    struct text path = {0};
    struct err e = {0};
    text_add(&path, "%s/metrics.jsonl", dir);
    int bad = history_read(path.s, &h, &e);
    json_t *o = bad ? NULL : report_make(&h);
    if (!bad && !o) bad = err_set(&e, E_DATA, "%s: numbers that are not finite", path.s);
    if (o && json) ctl_json_print(o, false);
    else if (o) report_print(o);
    json_decref(o);
    vec_free(&h.steps);
    text_free(&path);
    return bad ? ctl_fail(e.code, "%s", e.text) : ctl_output_end(0);
}
