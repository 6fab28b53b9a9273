/* Rank 0's scheduler: requests from the control socket and Prometheus. */
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/launched.h"
#include "cluster/thread_liveness.h"
#include "cluster/log.h"
#include "train/setup.h"
#include "cluster/shutdown.h"
#include "service/loop_int.h"
#include "conf/reload.h"
#include "train/resume.h"

/* Between two results. A failure ends the run, as it does for a result. */
static void request_tell(struct loop *l, const struct event *ev)
{
    struct err e = {0};
    if (reporters_tell(l->q.reporters, ev, &e)) loop_fail(l, &e);
}

void loop_pause_end(struct loop *l)
{
    if (!l->pause.on) return;
    l->pause.on = false;
    request_tell(l, &(struct event){.kind = EVENT_PAUSE, .step = (int64_t)l->pause.step,
                            .seconds = (double)(clock_ns() - l->pause.since) * 1e-9});
}

static int on_stop(void *ctx, struct err *e)
{
    struct loop *l = ctx;
    (void)e;
    loop_stop(l, STOP_WEIGHTS);
    return 0;
}

/* Whether the run will order no further step. */
static bool is_ending(const struct loop *l) { return l->stopped || l->sequencer.phase >= SEQUENCER_SAVE; }

static int on_pause(void *ctx, struct err *e)
{
    struct loop *l = ctx;
    if (l->pause.on) return 0;
    loop_revoke(l);
    if (is_ending(l)) {
        loop_orders(l);
        return err_set(e, E_STOPPED, "pause: the run is ending");
    }
    l->pause.on = true;
    l->pause.since = clock_ns();
    l->pause.step = l->sequencer.step;
    request_tell(l, &(struct event){.kind = EVENT_PAUSING, .step = (int64_t)l->pause.step});
    log_line("pausing after step %llu", (unsigned long long)l->sequencer.step);
    loop_orders(l);
    return 0;
}

static int on_resume(void *ctx, struct err *e)
{
    struct loop *l = ctx;
    (void)e;
    if (!l->pause.on) return 0;
    loop_pause_end(l);
    log_line("continuing after step %llu", (unsigned long long)l->sequencer.step);
    loop_orders(l);
    return 0;
}

static int rate_parse(const char *key, const char *value, double *rate, struct err *e)
{
    static const char may[] = "train.learning_rate";
    if (strcmp(key, may) != 0)
        return err_set(e, E_USAGE, "set: only %s can be set; others may change in the file, see reload", may);
    struct text t = {0};
    struct conf *c = conf_parse("set", "", 0, e);
    text_add(&t, "%s=%s", may, value);
    int bad = !c || conf_set(c, "set", t.s, e);
    if (!bad) *rate = c->train.learning_rate;
    text_free(&t);
    conf_free(c);
    return bad ? -1 : 0;
}

static int rate_note(struct loop *l, const struct rate_from *f, const struct rate_change *c, struct err *e)
{
    const char *at = liveness_wait_file(LIVE_SETTINGS_FILE);
    int bad = live_settings_note(l->q.rates, l->q.dir->fd, l->q.dir->path, f, c, e);
    liveness_wait_file(at);
    return bad;
}

/* A rate applies from the next step that ranks do not know yet. It is on disk before it is confirmed, so a run that is
 * lost resumes with it, even from an older checkpoint. */
static int on_set(void *ctx, const char *key, const char *value, json_t *answer, struct err *e)
{
    struct loop *l = ctx;
    double rate = 0;
    if (rate_parse(key, value, &rate, e)) return -1;
    loop_revoke(l);
    bool late = is_ending(l) || l->sequencer.step >= l->sequencer.steps;
    unsigned long long step = l->sequencer.step + 1;
    const struct rate_from f = {step, true, rate};
    int bad = late ? err_set(e, E_STOPPED, "set: all steps are ordered") : rate_note(l, &f, NULL, e);
    loop_orders(l);
    if (bad) return -1;
    log_line("%s is %.9g from step %llu on", key, rate, step);
    request_tell(l, &(struct event){.kind = EVENT_SET, .step = (int64_t)step, .key = key, .value = rate});
    json_object_set_new(answer, "step", json_integer((json_int_t)step));
    json_object_set_new(answer, "key", json_string(key));
    json_object_set_new(answer, "value", json_real(rate));
    return 0;
}

struct compared { const struct conf *was, *now; json_t *changed; };

static json_t *value_of(const struct conf *c, const char *key)
{
    struct text t = {0};
    conf_value(c, key, &t);
    json_t *v = t.n ? json_string(t.s) : json_null();
    text_free(&t);
    return v;
}

static void change_take(void *ctx, const char *key, bool live)
{
    struct compared *c = ctx;
    /* service settings only affect output, so resuming does not need them */
    if (!live || !strncmp(key, "service.", 8)) return;
    json_object_set_new(c->changed, key, json_pack("[o,o]", value_of(c->was, key), value_of(c->now, key)));
}

static void decided_take(void *ctx, const char *key, const char *value)
{
    if (!conf_is_live(key)) json_object_set_new(ctx, key, value ? json_string(value) : json_null());
}

/* Adds settings that begin or cease to decide bits because of the change, as train.steps does with a schedule that
 * falls over the run. */
static void follow_take(struct compared *c)
{
    json_t *was = json_object(), *now = json_object(), *value;
    const char *key;
    conf_decides(c->was, decided_take, was);
    conf_decides(c->now, decided_take, now);
    json_object_foreach(now, key, value) {
        json_t *old = json_object_get(was, key);
        if (!json_equal(old, value)) json_object_set_new(c->changed, key, json_pack("[O,O]", old, value));
    }
    json_decref(was);
    json_decref(now);
}

/* The changes are on disk before they are confirmed, as a rate that is set. A rate that was set applies until the file
 * has another one. */
static int reload_note(struct loop *l, const struct conf *now, const json_t *changed, struct err *e)
{
    struct live_settings *r = l->q.rates;
    loop_revoke(l);
    const uint64_t step = l->sequencer.step + 1;
    const struct rate_from none = {.step = step};
    struct compared c = {sequencer_conf(&l->sequencer, step), now, json_object()};
    bool unset = (r->first.any || r->v.n) && json_object_get(changed, "train.learning_rate");
    conf_compare(c.was, now, change_take, &c);
    follow_take(&c);
    if (l->q.job->conf->run.evaluate || (!json_object_size(c.changed) && !r->w.n)) {
        json_decref(c.changed);
        return 0;
    }
    if (!r->w.n) r->before = c.was;
    if (!rate_note(l, unset ? &none : NULL, &(struct rate_change){step, c.changed, now}, e)) return 0;
    loop_orders(l);
    return -1;
}

/* Applies the new settings from now on. */
static void conf_take(struct loop *l, const struct conf *now, const json_t *changed)
{
    if (json_object_get(changed, "service.progress")) {
        terminal_close(l->q.screen);
        terminal_open(l->q.screen, when_sign(now->service.progress), launched_any());
    }
    save_head(l->q.save, resume_resettle(save_headed(l->q.save), now));
    l->sequencer.conf = l->policy.conf = now;
}

/* Gives the configuration to q.rates, which frees it: steps that run again need the settings of their first time. */
static const struct conf *lent(struct loop *l, struct conf *c)
{
    if (c) *vec_push(&l->q.rates->own) = c;
    return c;
}

/* The same words as mpstagectl's. */
static void reloaded_report(const struct loop *l, json_t *changed)
{
    const unsigned long long step = l->sequencer.step + 1;
    const char *key;
    json_t *value;
    if (!json_object_size(changed)) log_line("reloaded %s: nothing has changed", l->q.opts->config);
    json_object_foreach(changed, key, value)
        log_line("reloaded %s: %s is %s from step %llu on", l->q.opts->config, key, json_string_value(value), step);
}

static int on_reload(void *ctx, json_t *answer, struct err *e)
{
    struct loop *l = ctx;
    const struct text *began = l->q.file;
    if (!l->file && !(l->file = lent(l, reload_make(l->q.opts, began->s, began->n, e)))) return -1;
    json_t *changed = json_object();
    const char *at = liveness_wait_file("the configuration file");
    struct conf *now = reload_read(l->q.opts, l->file, changed, e);
    liveness_wait_file(at);
    const struct conf *full = now ? job_conf(l->q.job, now) : NULL;
    bool other = json_object_size(changed), taken = now && (!other || !reload_note(l, full, changed, e));
    if (taken && other) {
        l->file = lent(l, now);
        conf_take(l, full, changed);
    }
    else conf_free(now);
    if (taken) {
        reloaded_report(l, changed);
        json_t *o = json_pack("{s:O}", "changed", changed);
        request_tell(l, &(struct event){.kind = EVENT_RELOAD, .step = (int64_t)l->sequencer.step + 1, .json = o,
                                .conf = l->sequencer.conf});
        json_decref(o);
        json_object_set_new(answer, "step", json_integer((json_int_t)l->sequencer.step + 1));
        json_object_set(answer, "changed", changed);
        loop_orders(l);
    }
    json_decref(changed);
    return taken ? 0 : -1;
}

static int on_log_level(void *ctx, const char *level, struct err *e)
{
    int k = log_level_of(level);
    (void)ctx;
    if (k < 0) return err_set(e, E_USAGE, "log-level: expected error, warning, note, info or debug");
    log_level_set((enum log_level)k);
    return 0;
}

/* At the border after the running steps; during an evaluation, after it. */
static int on_checkpoint(void *ctx, bool then_stop, uint64_t *step, struct err *e)
{
    struct loop *l = ctx;
    const struct conf *c = l->q.job->conf;
    if (c->run.evaluate) return err_set(e, E_CONF, "checkpoint: a run that only evaluates has none");
    if (then_stop) loop_stop(l, STOP_CHECKPOINT);
    else if (!loop_checkpoint(l) && !l->sequencer.saved)
        return err_set(e, E_STOPPED, "checkpoint: %s", is_ending(l) ? "the run is ending" : "no step is done yet");
    bool back = l->sequencer.phase == SEQUENCER_FAULT || l->sequencer.phase == SEQUENCER_ROLLBACK;
    *step = then_stop && back ? l->policy.step : sequencer_saves_step(&l->sequencer);
    if (then_stop && !back && *step != l->sequencer.step) /* a stop or the end came first, without a checkpoint */
        return err_set(e, E_STOPPED, "checkpoint: the run is ending");
    if (*step == l->policy.step) uv_async_send(&l->wake); /* it is on disk; on_wake answers the client */
    return 0;
}

static const char *state_of(const struct loop *l, bool evaluating)
{
    if (l->stopped) return "stopping";
    if (l->pause.on) return l->in_flight ? "pausing" : "paused";
    if (evaluating) return "evaluating";
    const enum sequencer_phase p = l->sequencer.phase;
    if ((p == SEQUENCER_GENERATE || p == SEQUENCER_INTERIM) && l->steps == l->sequencer.step) return "generating";
    return l->goes_back || l->sequencer.phase == SEQUENCER_TRAIN || l->steps < l->sequencer.step ?
        "training" : "saving";
}

static json_t *on_status(void *ctx)
{
    struct loop *l = ctx;
    /* Orders are given before they run. The orders of an evaluation are given while the last steps still run, and its
     * last ones while it runs. */
    bool evaluating = (l->sequencer.phase == SEQUENCER_EVALUATE && l->steps == l->sequencer.step) ||
        l->evaluation.samples;
    const char *state = state_of(l, evaluating);
    bool under_way = (evaluating || l->steps < l->sequencer.step) && !(l->pause.on && !l->in_flight);
    json_t *o = json_pack("{s:s,s:s,s:i,s:i,s:i}", "state", state, "name", l->q.job->conf->run.name, "pid",
                          (int)getpid(),
                          "ranks", job_world(l->q.job), "stages", l->q.job->n_stages);
    json_object_set_new(o, "step", json_integer((json_int_t)l->steps));
    json_object_set_new(o, "steps", json_integer((json_int_t)l->sequencer.steps));
    if (l->nonfinite) json_object_set_new(o, "nonfinite_steps", json_integer((json_int_t)l->nonfinite));
    request_tell(l, &(struct event){.kind = EVENT_STATUS, .held = !under_way, .json = o});
    if (l->stopped || l->pause.on) json_object_del(o, "eta_seconds");
    if (l->sequencer.step < l->sequencer.steps)
        json_object_set_new(o, "learning_rate", json_real(sequencer_rate(&l->sequencer, l->sequencer.step + 1, 0)));
    if (l->policy.step) {
        json_object_set_new(o, "checkpoint_step", json_integer((json_int_t)l->policy.step));
        json_object_set_new(o, "checkpoint_seconds", json_real(floor((double)(clock_ns() - l->policy.at) * 1e-9)));
    }
    return o;
}

static void on_metrics(void *ctx, bool openmetrics, struct text *page)
{
    request_tell(ctx, &(struct event){.kind = EVENT_PAGE, .page = page, .openmetrics = openmetrics});
}

/* Uses the words of mpstagectl's status, and two for states that it does not distinguish. */
static bool on_ready(void *ctx, struct text *word)
{
    static const char *const idle[] = {"starting", "paused", "stopping", "failed"};
    struct loop *l = ctx;
    json_t *status = on_status(l);
    const char *state = json_string_value(json_object_get(status, "state"));
    if (atomic_load(abort_code())) state = "failed";
    else if (!l->worked && strcmp(state, "training") == 0) state = "starting";
    bool ready = true;
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) ready &= strcmp(state, idle[i]) != 0;
    text_add(word, "%s", state);
    json_decref(status);
    return ready;
}

static int http_start(struct loop *l, struct err *e)
{
    struct http_calls calls = {on_metrics, on_ready, l};
    return l->q.http < 0 ? 0 : http_open(&l->uv, l->q.http, &calls, &l->http, e);
}

int loop_control(struct loop *l, struct err *e)
{
    struct ctl_calls calls = {.status = on_status, .stop = on_stop, .checkpoint = on_checkpoint, .pause = on_pause,
                              .resume = on_resume, .set = on_set, .reload = on_reload, .log_level = on_log_level,
                              .ctx = l};
    enum when wanted = l->q.job->conf->service.control;
    struct err why = {0};
    int bad = wanted != WHEN_NO ? ctl_open(&l->uv, l->q.dir->fd, l->q.dir->path, &calls, &l->ctl, &why) : 0;
    if (bad < 0 || (bad && wanted == WHEN_YES)) return err_set(e, why.code, "%s", why.text);
    if (bad) {
        ctl_close(l->ctl, why.code, why.text);
        log_line("note: %s; the run continues without it, and mpstagectl cannot reach it", why.text);
    }
    return http_start(l, e);
}
