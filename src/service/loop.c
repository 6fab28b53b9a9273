/* Rank 0's scheduler. */
#include "config.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/launched.h"
#include "report/energy.h"
#include "cluster/thread_liveness.h"
#include "cluster/log.h"
#include "cluster/shutdown.h"
#include "service/loop_int.h"
#include "cluster/heartbeat.h"
#include "train/weights.h"
#include "cluster/sd_notify.h"

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* While the run pauses, no step or batch begins. */
static bool is_held(const struct loop *l)
{
    enum sequencer_phase p = l->sequencer.phase;
    bool wanted = l->sequencer.wanted && l->sequencer.step != l->sequencer.saved;
    const bool between = p == SEQUENCER_EVALUATE || p == SEQUENCER_INTERIM;
    return l->pause.on && (p == SEQUENCER_TRAIN || (between && !wanted));
}

void loop_orders(struct loop *l)
{
    if (ckpt_policy_due(&l->policy)) sequencer_checkpoint(&l->sequencer);
    while (l->in_flight < IN_FLIGHT && !is_held(l) && !loop_back_waits(l)) {
        struct sequencer before = l->sequencer;
        if (!sequencer_next(&l->sequencer, l->task)) break;
        if (!queue_put(l->coordinator.orders, l->task)) break; /* never: the queue has space for all in flight */
        l->before[l->n_orders++ % IN_FLIGHT] = before;
        if (l->task->o.kind == ORDER_CHECKPOINT) ckpt_policy_ordered(&l->policy);
        l->in_flight++;
    }
    if (l->sequencer.phase > SEQUENCER_SAVE) notify_stopping(l->q.job->conf->run.evaluate ?
                                                             "ending" : "writing weights");
}

void loop_revoke(struct loop *l)
{
    int n = 0;
    bool wanted = l->sequencer.wanted;
    if (l->q.job->prompts) return;                        /* batches that generate cannot be taken back */
    for (; queue_unput(l->coordinator.orders, l->task); n++) { /* newest first: ranks may take the oldest meanwhile */
        if (order_interim(&l->task->o)) {
            queue_put(l->coordinator.orders, l->task);
            break;
        }
        if (l->task->o.kind == ORDER_CHECKPOINT) ckpt_policy_revoked(&l->policy);
    }
    if (!n) return;
    l->in_flight -= n;
    l->n_orders -= (uint64_t)n;
    l->sequencer = l->before[l->n_orders % IN_FLIGHT];
    l->sequencer.wanted |= wanted;
}

void loop_stop(struct loop *l, enum sequencer_stop how)
{
    if (l->stopped || l->sequencer.phase >= SEQUENCER_SAVE) return;
    loop_pause_end(l);
    l->stopped = true;
    notify_stopping("stopping");
    loop_revoke(l);
    sequencer_stop(&l->sequencer, how);
    loop_orders(l);
    log_line("stopping after step %llu", (unsigned long long)l->sequencer.step);
}

bool loop_checkpoint(struct loop *l)
{
    loop_revoke(l);
    bool wanted = sequencer_checkpoint(&l->sequencer);
    loop_orders(l);
    return wanted;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int loop_tell(struct loop *l, const struct event *ev, struct err *e)
{
    return reporters_tell(l->q.reporters, ev, e);
}

/* A step without an update counts and is reported as any other (check_finite in coordinator.c). */
static void skip_count(struct loop *l, const struct result *r)
{
    l->skipped_in_a_row = r->rep[0].nonfinite ? l->skipped_in_a_row + 1 : 0;
    if (!r->rep[0].nonfinite) return;
    l->nonfinite++;
    l->known.skipped++;
    if (conf_rolls_back(l->q.job->conf)) loop_back_begin(l, r);
}

static int result_step(struct loop *l, const struct result *r, struct err *e)
{
    struct sums s;
    struct event ev = event_of_step(r, job_world(l->q.job), &l->rates, &s);
    l->steps = l->known.step = r->o.step;
    l->samples += (uint64_t)s.samples;
    l->worked = true;
    if (loop_tell(l, &ev, e)) return -1;
    skip_count(l, r);
    return 0;
}

static void batch_count(struct loop *l, const struct result *r)
{
    struct sums s = {0};
    sums_add(&s, r, job_world(l->q.job));
    l->batches.n++;
    if (!isfinite(score_mean(s.score, 0)) && !l->batches.bad++) l->batches.first = l->batches.n;
}

/* A run that only evaluates fails if a loss is not finite, because the loss is its result. During training such a test
 * loss is only noted: weights that are not finite show in the next step, or when they are written. */
static int batches_report(struct loop *l, struct err *e)
{
    char text[200];
    int bad = l->batches.bad;
    snprintf(text, sizeof text, "evaluation: the loss of %d of %d batches is not finite, first of batch %d; look for "
             "NaN and very large values in the weights and in the test data", bad, l->batches.n, l->batches.first);
    memset(&l->batches, 0, sizeof l->batches);
    if (!bad) return 0;
    if (l->q.job->conf->run.evaluate) return err_set(e, E_NONFINITE, "%s", text);
    log_line("note: %s", text);
    return 0;
}

static int result_predicted(struct loop *l, const struct sums *s, struct err *e)
{
    return loop_tell(l, &(struct event){.kind = EVENT_PREDICTION, .file = l->q.job->conf->run.predict,
                                        .samples = s->samples, .seconds = (double)s->ns * 1e-9}, e);
}

void loop_planned(struct loop *l)
{
    struct err none = {0};
    loop_tell(l, &(struct event){.kind = EVENT_PLANNED, .step = (int64_t)l->sequencer.steps}, &none);
}

/* How it went, after the last batch. step -1: of run.generate. */
static int generation_report(struct loop *l, int64_t step, struct err *e)
{
    const struct generation_sums s = generation_sums(l->q.generation);
    return loop_tell(l, &(struct event){.kind = EVENT_GENERATION, .step = step, .prompts = s.prompts,
                                        .tokens = s.tokens, .prefill_seconds = (double)s.prefill_ns * 1e-9,
                                        .decode_seconds = (double)s.decode_ns * 1e-9,
                                        .tokens_per_second = s.decode_ns ? (double)s.tokens * 1e9 / (double)s.decode_ns
                                                                         : -1}, e);
}

/* Prints the lines that are ready. */
static int result_generated(struct loop *l, const struct result *r, struct err *e)
{
    struct generation *g = l->q.generation;
    struct text lines = {0};
    generation_time(g, r->o.what & ORDER_ONLY_ENTERS, r->ns);
    generation_take(g, &lines);
    if (lines.n) fwrite(lines.s, 1, lines.n, stdout);
    const bool bad = lines.n && (fflush(stdout) || ferror(stdout));
    text_free(&lines);
    if (bad) return err_set(e, E_IO, "standard output: cannot write the generated texts");
    if (l->generated || !generation_complete(g)) return 0;
    l->generated = true;
    return generation_report(l, -1, e);
}

/* Tells a text of generate.every_steps. */
static int text_tell(struct loop *l, const char *line, size_t n, struct err *e)
{
    json_t *o = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    const int bad = loop_tell(l, &(struct event){.kind = EVENT_GENERATED, .step = (int64_t)l->steps, .json = o}, e);
    json_decref(o);
    return bad;
}

static int result_interim(struct loop *l, const struct result *r, struct err *e)
{
    struct text lines = {0};
    int bad = 0;
    if (r->o.what & ORDER_TAKES_WEIGHTS) l->generated = false;
    generation_time(l->q.generation, r->o.what & ORDER_ONLY_ENTERS, r->ns);
    generation_take(l->q.generation, &lines);
    for (char *s = lines.s, *end; lines.n && !bad && *s; s = end + 1) {
        end = strchr(s, '\n');
        bad = text_tell(l, s, (size_t)(end - s), e);
    }
    text_free(&lines);
    if (bad || l->generated || !generation_complete(l->q.generation)) return bad;
    l->generated = l->worked = true;
    return generation_report(l, (int64_t)l->steps, e);
}

/* Reports that train.patience is exhausted, which ends the run. */
static void enough_report(struct loop *l)
{
    const struct ckpt_best *b = &l->policy.so_far;
    char value[80];
    struct score_style style = score_style_of(b->score);
    score_print(&style, b->value, SCORE_TEST, value, sizeof value);
    l->enough = true;
    loop_planned(l);
    if (*b->score)
        log_line("%llu evaluation%s without a better one than %s after step %llu: the run ends",
                 (unsigned long long)b->waited, b->waited == 1 ? "" : "s", value, (unsigned long long)b->step);
    else
        log_line("%llu evaluation%s without a score that is a number: the run ends", (unsigned long long)b->waited,
                 b->waited == 1 ? "" : "s");
}

static int result_evaluation(struct loop *l, const struct result *r, struct err *e)
{
    sums_add(&l->evaluation, r, job_world(l->q.job));
    batch_count(l, r);
    if (loop_tell(l, &(struct event){.kind = EVENT_BATCH, .result = r, .sums = &l->evaluation}, e)) return -1;
    if (!r->last) return 0;
    struct sums s = l->evaluation;
    l->evaluation = (struct sums){0};
    if (l->q.job->conf->run.predict) return result_predicted(l, &s, e);
    l->worked = true;
    struct event ev = {.kind = EVENT_EVALUATION, .step = (int64_t)l->steps, .epoch = (int64_t)r->epoch,
                       .samples = s.samples, .ns = s.ns, .sums = &s};
    event_of_tokens(&ev, &l->rates);
    if (loop_tell(l, &ev, e)) return -1;
    bool best = ckpt_policy_scored(&l->policy, l->steps, &s);
    sequencer_scored(&l->sequencer, best, ckpt_policy_enough(&l->policy));
    if (ckpt_policy_enough(&l->policy) && !l->stopped) enough_report(l);
    return batches_report(l, e);
}

static int result_take(struct loop *l, const struct result *r, struct err *e)
{
    if (l->goes_back) return loop_back_take(l, r, e);
    switch ((enum order_kind)r->o.kind) {
    case ORDER_TRAIN: return result_step(l, r, e);
    case ORDER_EVAL:
        if (order_interim(&r->o)) return result_interim(l, r, e);
        return l->q.job->prompts ? result_generated(l, r, e) : result_evaluation(l, r, e);
    case ORDER_CHECKPOINT: ckpt_policy_release(&l->policy, &r->o, l->skipped_in_a_row); return 0;
    case ORDER_SAVE:
        if (r->o.what == WEIGHTS_ALL) snprintf(l->hash, sizeof l->hash, "%s", r->hash);
        return 0;
    case ORDER_ROLLBACK: case ORDER_STOP: case ORDER_ABORT: break;
    }
    return 0;
}

void loop_fail(struct loop *l, const struct err *e)
{
    if (l->failed) return;
    l->failed = true;
    abort_request(0, e->code, e->text);
}

/* The executor leaves soon after the abort code is set. If it hangs in a call, this thread ends the job. */
static void last_words(struct loop *l)
{
    struct failure f;
    struct err none = {0};
    abort_failure(&f);
    loop_tell(l, &(struct event){.kind = EVENT_FAILED, .code = f.e.code, .text = f.e.text}, &none);
    ctl_close(l->ctl, f.e.code, f.e.text);
    shutdown_end();
}

static void on_asked(struct loop *l)
{
    unsigned a = shutdown_asked();
    if (a & SHUTDOWN_ASK_END) last_words(l);
    if (a & SHUTDOWN_ASK_CHECKPOINT &&
        !loop_checkpoint(l)) log_line("no checkpoint: nothing has changed since the last "
                                                                     "one");
    if (a & SHUTDOWN_ASK_REOPEN_LOG) log_reopen();
    if (a & SHUTDOWN_ASK_CHECKPOINT_AND_STOP) loop_stop(l, STOP_RESUMABLE);
}

/* A revoked order must not restore it. */
static void lost_take(struct loop *l)
{
    if (!l->policy.lost) return;
    sequencer_unsaved(&l->sequencer, l->policy.lost);
    for (int i = 0; i < IN_FLIGHT; i++) sequencer_unsaved(&l->before[i], l->policy.lost);
    l->policy.lost = 0;
}

/* A run that only evaluates has nothing to resume. */
static void saved_report(const struct loop *l)
{
    if (!l->q.job->conf->run.evaluate) shutdown_saved(l->policy.step);
}

static void on_wake(uv_async_t *a)
{
    struct loop *l = a->data;
    struct err e = {0};
    while (queue_get(l->coordinator.results, l->result, 0)) {
        l->in_flight--;
        if (l->result->o.kind == ORDER_TRAIN && !l->goes_back)     /* the rate that it used */
            l->result->o.learning_rate = order_rate(&l->result->o, l->known.skipped);
        if (!l->failed && result_take(l, l->result, &e)) loop_fail(l, &e);
    }
    if (ckpt_policy_take(&l->policy, l->stopped || l->sequencer.phase >= SEQUENCER_SAVE, &e)) loop_fail(l, &e);
    lost_take(l);
    saved_report(l);
    if (!l->failed && loop_back_turn(l, &e)) loop_fail(l, &e);
    if (l->policy.step) ctl_checkpoint_done(l->ctl, l->policy.step, 0, "");
    if (l->coordinator.costs && queue_get(l->coordinator.costs, l->costs, 0)) {
        struct event costs = {.kind = EVENT_COSTS, .costs = l->costs};
        if (!l->failed && loop_tell(l, &costs, &e)) loop_fail(l, &e);
    }
    on_asked(l);
    loop_orders(l);
}

/* On the writer's thread. */
static void loop_saved(void *ctx, const struct save_done *d)
{
    struct loop *l = ctx;
    queue_put(l->policy.done, d);                         /* one is written at a time, so there is space */
    uv_async_send(&l->wake);
}

static void loop_wake(void *ctx) { uv_async_send(&((struct loop *)ctx)->wake); }

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* When the run must stop so that its checkpoint is saved before the job ends. */
static void stop_plan(struct loop *l)
{
    const struct conf *c = l->q.job->conf;
    int64_t left = launched_seconds_left(), before = c->run.stop_before_end;
    if (left < 0 || !before || c->run.evaluate) return;
    if (before > left / 2) before = left / 2;
    l->stop_at = l->began + (uint64_t)(left - before) * 1000000000u;
    log_line("Slurm ends the job in %lld s; the run stops with a checkpoint %lld s before (run.stop_before_end)",
             (long long)left, (long long)before);
}

static void stop_poll(struct loop *l)
{
    if (!l->stop_at || clock_ns() < l->stop_at) return;
    l->stop_at = 0;
    log_line("the job is about to end (run.stop_before_end)");
    loop_stop(l, STOP_RESUMABLE);
}

static void on_tick(uv_timer_t *t)
{
    struct loop *l = t->data;
    struct err none = {0};
    stop_poll(l);
    liveness_turn();
    loop_tell(l, &(struct event){.kind = EVENT_TICK, .held = is_held(l) && !l->in_flight}, &none);
    log_tick();
    ckpt_policy_tick(&l->policy);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

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

/* Called after the thread has ended: clients learn of the end only when everything is written. After a failure a
 * checkpoint writer may still be running. */
static void loop_end(struct loop *l, int code, const char *how)
{
    ctl_close(l->ctl, code, how);
    http_close(l->http);
    save_leave(l->q.save);
    uv_end(l);
}

static void loop_main(void *arg)
{
    pthread_setname_np(pthread_self(), "mpstaged:sched");
    liveness_begin();
    uv_run(&((struct loop *)arg)->uv, UV_RUN_DEFAULT);
}

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
    l->rates = (struct event_rates){job_flops(q->job), q->peak, job_tokens(q->job),
                                   q->job->data[DS_TEST] ? q->job->data[DS_TEST]->label_bytes : 0};
    l->task = mem_alloc(task_bytes(q->job));
    l->result = mem_alloc(result_bytes(job_world(q->job)));
    l->coordinator = (struct coordinator){.orders = queue_new(IN_FLIGHT, task_bytes(q->job)),
                                          .results = queue_new(IN_FLIGHT + 1,
            result_bytes(job_world(q->job))),
                            .wake = loop_wake, .ctx = l, .files = files};
    size_t costs = (size_t)warmup_count(q->job) * sizeof *l->costs;
    if (costs) {
        l->costs = mem_alloc(costs);
        l->coordinator.costs = queue_new(1, costs);
    }
    sequencer_begin(&l->sequencer, q->job, q->from);
    l->sequencer.generation = q->generation;
    l->sequencer.rates = q->rates;
    l->sequencer.known = &l->known;
    ckpt_policy_begin(&l->policy, q->job, q->save, q->from, q->best);
    if (q->from && ckpt_policy_enough(&l->policy) && !l->sequencer.evaluate_due) {
        sequencer_enough(&l->sequencer);
        l->enough = true;
        log_line("note: the run had ended by train.patience = %lld; a larger value continues it",
                 (long long)q->job->conf->train.patience);
    }
    save_lead(q->save, &(struct save_lead){q->reporters, q->dir->fd, loop_saved, l});
    if (q->from) {
        l->steps = q->from->step;
        l->samples = sequencer_samples(q->job, q->from->position);
        l->known = (struct known){q->from->step, q->from->step - q->from->updates};
        l->skipped_in_a_row = l->coordinator.skipped = q->from->skipped;
    }
    l->policy.reporters = q->reporters;
    l->began = clock_ns();
    stop_plan(l);
    loop_planned(l);
    return l;
}

/* Frees the loop, whose libuv loop is closed or was never opened. */
static void loop_free(struct loop *l)
{
    ctl_free(l->ctl);
    http_free(l->http);
    ckpt_policy_end(&l->policy);
    queue_free(l->coordinator.orders);
    queue_free(l->coordinator.results);
    queue_free(l->coordinator.costs);
    free(l->costs);
    free(l->task);
    free(l->result);
    free(l);
}

static void client_report(void *ctl, uint64_t step, int code, const char *text)
{
    ctl_checkpoint_done(ctl, step, code, text);
}

static int loop_start(struct loop *l, struct err *e)
{
    if (loop_control(l, e)) return -1;
    l->policy.on_saved = client_report;
    l->policy.ctx = l->ctl;
    shutdown_wake(loop_wake, l);
    saved_report(l);
    on_asked(l);
    loop_orders(l);
    int bad = uv_thread_create(&l->thread, loop_main, l);
    return bad ? err_set(e, E_OS, "thread: %s", uv_strerror(bad)) : 0;
}

int loop_open(const struct loop_request *q, struct loop **out, struct coordinator *coordinator, struct err *e)
{
    struct loop *l = loop_new(q, coordinator->files);
    int bad = uv_open(l, e);
    if (!bad && (bad = loop_start(l, e))) {
        http_close(l->http);
        uv_end(l);
    }
    if (bad) {
        if (!l->http && q->http >= 0) close(q->http);
        loop_free(l);
        return -1;
    }
    *coordinator = l->coordinator;
    *out = l;
    return 0;
}

static const char *reason_of(const struct loop *l)
{
    return l->stopped ? "stopped" : l->enough ? "patience" : "finished";
}

static int last_lines(struct loop *l, int code, const char *text, const char *summary, struct err *e)
{
    struct event ev = {.kind = EVENT_END, .text = summary}, failed = {.kind = EVENT_FAILED};
    struct err more = {0};
    int bad = loop_tell(l, &ev, e);
    if (!bad && !code) {
        ev = (struct event){.kind = EVENT_DONE, .steps = (int64_t)l->steps, .trained_samples = (int64_t)l->samples,
                            .energy_joules = energy_joules(reporters_find(l->q.reporters, "energy")),
                            .gpu_energy_joules = energy_gpu_joules(reporters_find(l->q.reporters, "energy")),
                            .reason = reason_of(l), .weights_hash = *l->hash ? l->hash : NULL,
                            .ns = clock_ns() - l->began};
        ev.json = ev.weights_hash ? json_pack("{s:o}", "weights_ranks", weights_ranks(l->q.job->pl)) : NULL;
        bad = loop_tell(l, &ev, e);
        json_decref(ev.json);
    }
    if (!bad && !code) return 0;
    failed.code = code ? code : e->code;
    failed.text = code ? text : e->text;
    return loop_tell(l, &failed, bad ? &more : e) || bad ? -1 : 0;
}

/* A run that was stopped to be resumed ends with 75, a run that could not write the requested checkpoint with 74. */
static int stopped_resumable(const struct loop *l, struct err *e)
{
    const struct sequencer *c = &l->sequencer;
    char name[CKPT_NAME];
    if (!l->stopped || c->how == STOP_WEIGHTS) return 0;
    shutdown_saved(SHUTDOWN_UNNAMED);
    if (l->policy.last.code)
        return err_set(e, l->policy.last.code, "stopped after step %llu, but without a checkpoint of it: %s",
                       (unsigned long long)c->step, l->policy.last.text);
    if (c->how != STOP_RESUMABLE) return 0;
    if (!c->step) return err_set(e, E_STOPPED, "stopped before the first step");
    return err_set(e, E_STOPPED, "stopped after step %llu, which is in checkpoints/%s; --resume continues",
                   (unsigned long long)c->step, ckpt_name(c->step, name));
}

/* Adds the scores of a run that has trained and evaluated, and where the best weights are. */
static void summary_add(const struct loop *l, struct text *t)
{
    const struct ckpt_best *b = &l->policy.so_far;
    struct score_style style = score_style_of(b->score);
    char last[80], best[80], name[CKPT_NAME];
    struct text at = {0};
    if (!*b->score || l->q.job->conf->run.evaluate || !l->policy.score.key) return;
    score_print(&style, ckpt_policy_last(&l->policy), SCORE_TEST, last, sizeof last);
    score_print(&style, b->value, SCORE_TEST, best, sizeof best);
    text_add(&at, CKPT_FOLDER "/%s", ckpt_name(b->step, name));
    bool kept = !faccessat(l->q.dir->fd, at.s, F_OK, 0), same = !b->waited;
    if (!same) text_add(t, "last evaluation: %s after step %llu\n", last, (unsigned long long)l->policy.score.step);
    text_add(t, "%s evaluation: %s after step %llu%s%s", same ? "last and best" : "best", best,
             (unsigned long long)b->step, kept ? ", in " : "", kept ? at.s : "");
    text_free(&at);
}

int loop_close(struct loop *l, int code, const char *text, struct err *e)
{
    struct failure f;
    shutdown_wake(NULL, NULL);
    uv_async_send(&l->quit);
    uv_thread_join(&l->thread);
    liveness_end();
    if (l->failed && !code && abort_failure(&f)) *e = f.e, code = e->code, text = e->text;
    if (!code && stopped_resumable(l, e)) code = e->code, text = e->text;
    struct err mine = {0};
    struct text summary = {0};
    if (!code) summary_add(l, &summary);
    int bad = last_lines(l, code, text, summary.s, &mine);
    text_free(&summary);
    if (bad && !e->code) *e = mine;
    if (code) loop_end(l, code, text);
    else loop_end(l, e->code, e->code ? e->text : reason_of(l));
    loop_free(l);
    return e->code ? -1 : 0;
}
