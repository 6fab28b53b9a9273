/* The scheduler of rank 0. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "daemon/report/grade.h"
#include "daemon/report/log.h"
#include "daemon/report/progress.h"
#include "daemon/run/doom.h"
#include "daemon/run/loop.h"
#include "daemon/run/weights.h"
#include "daemon/talk/ctl.h"

/* orders in flight: one that runs, one that the ranks know, one in the ring */
enum { IN_FLIGHT = 3, TICK_MS = 100, PATIENCE_NS = 1000000000 };

struct loop {
    uv_loop_t uv;
    uv_thread_t thread;
    uv_async_t wake, quit;
    uv_timer_t tick;
    struct ctl *ctl;
    struct loop_request q;
    struct lead lead;
    struct course course;
    struct task *task;                                    /* scratch */
    struct result *result;
    int in_flight;
    struct sums evaluation;
    struct { int n, bad, first; } batches;                /* evaluated: all, those with no finite loss, the first */
    struct progress progress;
    struct grade *grade;
    double *costs;                                        /* scratch: probe_count numbers */
    uint64_t steps, samples;
    char hash[33];
    bool stopped, done;
    struct err failed;                                    /* of the loop itself */
};

/* ---- orders out -------------------------------------------------------------------------------------------------- */

static void orders_fill(struct loop *l)
{
    while (l->in_flight < IN_FLIGHT && course_next(&l->course, l->task)) {
        if (!ring_put(l->lead.orders, l->task)) return;   /* never: the ring has room for all in flight */
        l->in_flight++;
    }
}

/* Takes back the orders that ranks do not know yet, so that a stop ends after the steps under way. */
static void orders_revoke(struct loop *l)
{
    bool earlier = false;
    while (ring_get(l->lead.orders, l->task, 0)) {
        l->in_flight--;
        if (l->task->o.kind == ORDER_TRAIN && !earlier) l->course.step = l->task->o.step - 1;
        earlier |= l->task->o.kind == ORDER_TRAIN;
    }
    course_stop(&l->course);
}

static void on_stop(void *ctx)
{
    struct loop *l = ctx;
    if (l->stopped || l->course.phase >= COURSE_SAVE) return;
    l->stopped = true;
    orders_revoke(l);
    orders_fill(l);
    log_line("stopping after step %llu", (unsigned long long)l->course.step);
}

/* ---- results in -------------------------------------------------------------------------------------------------- */

/* Logs what the first steps showed. */
static void verdict_lines(struct loop *l)
{
    struct text t = {0};
    grade_verdict(l->grade, &t);
    if (t.n) log_lines(t.s);
    text_free(&t);
}

static int result_step(struct loop *l, const struct result *r, struct err *e)
{
    struct sums s = {0};
    sums_add(&s, r, l->q.job->n_ranks);
    l->steps = r->o.step;
    l->samples += (uint64_t)s.samples;
    progress_step(&l->progress, r, &s);
    grade_step(l->grade, r);
    verdict_lines(l);
    if (l->q.events && events_step(l->q.events, r, e)) return -1;
    return metrics_step(l->q.metrics, r, e);
}

static void batch_count(struct loop *l, const struct result *r)
{
    struct sums s = {0};
    sums_add(&s, r, l->q.job->n_ranks);
    l->batches.n++;
    if (!isfinite(score_mean(s.score)) && !l->batches.bad++) l->batches.first = l->batches.n;
}

/* A run that only evaluates fails if a loss is not finite, because the loss is its result. During training such a test
 * loss is only noted: weights that are not finite show in the next step, or when they are written. */
static int batches_judge(struct loop *l, struct err *e)
{
    char text[200];
    int bad = l->batches.bad;
    snprintf(text, sizeof text, "evaluation: the loss of %d of %d batches is not finite, first of batch %d; look for "
             "NaN and very large values in the test data", bad, l->batches.n, l->batches.first);
    memset(&l->batches, 0, sizeof l->batches);
    if (!bad) return 0;
    if (l->q.job->conf->run.evaluate) return err_set(e, E_NONFINITE, "%s", text);
    log_line("note: %s", text);
    return 0;
}

static int result_evaluation(struct loop *l, const struct result *r, struct err *e)
{
    if (!l->evaluation.samples && !r->last)
        log_line("evaluating %llu test samples", (unsigned long long)l->q.job->count[DS_TEST]);
    sums_add(&l->evaluation, r, l->q.job->n_ranks);
    batch_count(l, r);
    grade_step(l->grade, r);
    if (!r->last) {
        progress_evaluating(&l->progress, &l->evaluation);
        return 0;
    }
    struct sums s = l->evaluation;
    l->evaluation = (struct sums){0};
    progress_evaluation(&l->progress, l->steps, &s);
    if (l->q.events && events_evaluation(l->q.events, l->steps, &s, e)) return -1;
    if (metrics_evaluation(l->q.metrics, l->steps, r->epoch, &s, e)) return -1;
    return batches_judge(l, e);
}

static int result_take(struct loop *l, const struct result *r, struct err *e)
{
    switch ((enum order_kind)r->o.kind) {
    case ORDER_TRAIN: return result_step(l, r, e);
    case ORDER_EVAL: return result_evaluation(l, r, e);
    case ORDER_SAVE:
        if (r->o.what == WEIGHTS_ALL) snprintf(l->hash, sizeof l->hash, "%s", r->hash);
        return 0;
    case ORDER_STOP: case ORDER_ABORT: break;
    }
    return 0;
}

static void on_wake(uv_async_t *a)
{
    struct loop *l = a->data;
    struct err e = {0};
    while (ring_get(l->lead.results, l->result, 0)) {
        l->in_flight--;
        if (l->failed.code || !result_take(l, l->result, &e)) continue;
        l->failed = e;
        doom_set(e.code, e.text);
    }
    if (l->lead.costs && ring_get(l->lead.costs, l->costs, 0)) {
        grade_costs(l->grade, l->costs);
        verdict_lines(l);
    }
    orders_fill(l);
}

static void loop_wake(void *ctx) { uv_async_send(&((struct loop *)ctx)->wake); }

/* ---- control ----------------------------------------------------------------------------------------------------- */

static json_t *on_status(void *ctx)
{
    struct loop *l = ctx;
    /* Orders are given before they are run: those of an evaluation while the last steps still run, its last ones while
     * it runs. */
    bool evaluating = (l->course.phase == COURSE_EVALUATE && l->steps == l->course.step) || l->progress.test_done;
    const char *state = l->stopped ? "stopping" : evaluating ? "evaluating"
            : l->course.phase == COURSE_TRAIN || l->steps < l->course.step ? "training" : "saving";
    json_t *o = json_pack("{s:s,s:s,s:i,s:i,s:i}", "state", state, "name", l->q.job->conf->run.name, "pid",
                          (int)getpid(),
                          "ranks", l->q.job->n_ranks, "stages", l->q.job->n_stages);
    json_object_set_new(o, "step", json_integer((json_int_t)l->steps));
    json_object_set_new(o, "steps", json_integer((json_int_t)l->course.steps));
    progress_json(&l->progress, evaluating || l->steps < l->course.step, o);
    if (l->stopped) json_object_del(o, "eta_seconds");
    return o;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* The executor leaves soon after the abort word is set. If it hangs in a call, the job ends here; after a signal in
 * time, before the watching thread of doom.c ends the process. */
static void on_tick(uv_timer_t *t)
{
    struct loop *l = t->data;
    struct err e, none = {0};
    progress_tick(&l->progress);
    if (!atomic_load(doom_word()) || !doom_get(&e)) return;
    uint64_t end = doom_since() + (e.code == E_STOPPED ? DOOM_LOOP_MS * UINT64_C(1000000) : PATIENCE_NS),
             now = clock_ns();
    if (now < end) {
        uint64_t ms = (end - now) / 1000000 + 1;
        if (ms < TICK_MS) uv_timer_start(t, on_tick, ms, TICK_MS);
        return;
    }
    metrics_failed(l->q.metrics, e.code, e.text, &none);
    log_error(e.code, e.text);
    ctl_close(l->ctl, e.code, e.text);
    l->q.tp->ops->abort(l->q.tp, e.code);
    _exit(e.code);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void on_quit(uv_async_t *a)
{
    struct loop *l = a->data;
    on_wake(&l->wake);
    uv_stop(&l->uv);
}

static void handle_close(uv_handle_t *h, void *none)
{
    (void)none;
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

static void uv_end(struct loop *l)
{
    uv_walk(&l->uv, handle_close, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    uv_loop_close(&l->uv);
}

/* Called when the thread has ended: clients hear of the end when everything is written. */
static void loop_end(struct loop *l, int code, const char *how)
{
    ctl_close(l->ctl, code, how);
    uv_end(l);
}

static void loop_main(void *arg) { uv_run(&((struct loop *)arg)->uv, UV_RUN_DEFAULT); }

static int uv_open(struct loop *l, struct err *e)
{
    int none = uv_loop_init(&l->uv), bad = none;
    if (!bad) bad = uv_async_init(&l->uv, &l->wake, on_wake);
    if (!bad) bad = uv_async_init(&l->uv, &l->quit, on_quit);
    if (!bad) bad = uv_timer_init(&l->uv, &l->tick);
    l->wake.data = l->quit.data = l->tick.data = l;
    if (!bad) bad = uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
    if (bad && !none) uv_end(l);
    return bad ? err_set(e, E_OS, "event loop: %s", uv_strerror(bad)) : 0;
}

static struct loop *loop_new(const struct loop_request *q, const struct outputs *files)
{
    struct loop *l = mem_alloc(sizeof *l);
    l->q = *q;
    l->task = mem_alloc(task_bytes(q->job));
    l->result = mem_alloc(result_bytes(q->job->n_ranks));
    l->lead = (struct lead){.orders = ring_new(IN_FLIGHT, task_bytes(q->job)), .results = ring_new(IN_FLIGHT + 1,
            result_bytes(q->job->n_ranks)),
                            .wake = loop_wake, .ctx = l, .files = files};
    size_t costs = (size_t)probe_count(q->job) * sizeof *l->costs;
    if (costs) {
        l->costs = mem_alloc(costs);
        l->lead.costs = ring_new(1, costs);
    }
    course_begin(&l->course, q->job);
    progress_begin(&l->progress, q->job, l->course.steps, q->screen);
    l->grade = grade_new(q->job, q->one_process);
    return l;
}

/* Frees the loop, whose libuv loop is closed or was never opened. */
static void loop_free(struct loop *l)
{
    ctl_free(l->ctl);
    grade_free(l->grade);
    ring_free(l->lead.orders);
    ring_free(l->lead.results);
    ring_free(l->lead.costs);
    free(l->costs);
    free(l->task);
    free(l->result);
    free(l);
}

static int loop_start(struct loop *l, struct err *e)
{
    struct ctl_calls calls = {on_status, on_stop, l};
    if (ctl_open(&l->uv, l->q.dir->fd, l->q.dir->path, &calls, &l->ctl, e)) return -1;
    orders_fill(l);
    int bad = uv_thread_create(&l->thread, loop_main, l);
    return bad ? err_set(e, E_OS, "thread: %s", uv_strerror(bad)) : 0;
}

int loop_open(const struct loop_request *q, struct loop **out, struct lead *lead, struct err *e)
{
    struct loop *l = loop_new(q, lead->files);
    int bad = uv_open(l, e);
    if (!bad && (bad = loop_start(l, e))) uv_end(l);
    if (bad) {
        loop_free(l);
        return -1;
    }
    *lead = l->lead;
    *out = l;
    return 0;
}

static int account_line(struct loop *l, struct err *e)
{
    struct text t = {0};
    if (!grade_any(l->grade)) return 0;
    grade_end(l->grade);
    grade_text(l->grade, &t);
    log_lines(t.s);
    text_free(&t);
    return metrics_event(l->q.metrics, grade_json(l->grade), e);
}

static const char *reason_of(const struct loop *l) { return l->stopped ? "stopped" : "finished"; }

static int last_lines(struct loop *l, int code, const char *text, struct err *e)
{
    int bad = account_line(l, e);
    if (bad && !code) code = e->code, text = e->text;
    if (code) return metrics_failed(l->q.metrics, code, text, e) || bad ? -1 : 0;
    struct done d = {.steps = l->steps, .samples = l->samples, .reason = reason_of(l),
                     .hash = *l->hash ? l->hash : NULL};
    return metrics_done(l->q.metrics, &d, e);
}

int loop_close(struct loop *l, int code, const char *text, struct err *e)
{
    uv_async_send(&l->quit);
    uv_thread_join(&l->thread);
    if (l->failed.code && !code) { *e = l->failed; code = e->code; text = e->text; }
    struct err mine = {0};
    progress_end(&l->progress);
    int bad = last_lines(l, code, text, &mine);
    if (bad && !e->code) *e = mine;
    if (code) loop_end(l, code, text);
    else loop_end(l, e->code, e->code ? e->text : reason_of(l));
    loop_free(l);
    return e->code ? -1 : 0;
}
