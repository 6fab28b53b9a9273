/* Rank 0 of a job: announces orders one step ahead, runs its own part, gathers reports, and ends all ranks when one
 * fails. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "model/decoder.h"
#include "train/generation.h"
#include "report/predict.h"
#include "train/control_channel_int.h"
#include "model/lora.h"
#include "train/lora_merge.h"
#include "train/model_folder.h"
#include "train/weights.h"

static int send_all(struct control *s, const struct order *o, size_t bytes, struct err *e)
{
    for (int rank = 1; rank < s->n; rank++)
        if (s->tp->ops->send_msg(s->tp, rank, CONTROL_ORDER, o, bytes, e)) return -1;
    return 0;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

int coordinator_report(struct control *s, const struct report *r, struct err *e)
{
    uint64_t k = s->n_reports[r->rank];
    if (k >= s->n_opened)
        return err_set(e, E_INTERNAL, "rank %d reports step %llu, which was not ordered", r->rank,
                       (unsigned long long)r->step);
    s->open[k % OPEN_RESULTS]->rep[r->rank] = *r;
    s->ended[k % OPEN_RESULTS] = clock_ns();
    s->n_reports[r->rank]++;
    return 0;
}

void coordinator_failed(struct control *s, const struct failure_report *r)
{
    abort_report(&r->f);
    if (!s->has_failed[r->rank]) s->n_failed++;
    s->has_failed[r->rank] = true;
}

static bool complete(const struct control *s)
{
    if (s->first_open == s->n_opened) return false;
    for (int i = 0; i < s->n; i++) if (s->n_reports[i] <= s->first_open) return false;
    return true;
}

/* Decides whether a step without an update ends the run. The ranks know about the step; ranks that run ahead did
 * nothing that must be undone. */
static int check_finite(struct control *s, const struct result *r, struct err *e)
{
    const struct conf *c = s->job->conf;
    char what[300], row[80] = "";
    if (r->o.kind != ORDER_TRAIN || conf_rolls_back(c)) return 0; /* the loop rolls back instead */
    s->skipped = r->rep[0].nonfinite ? s->skipped + 1 : 0;
    bool skips = c->train.nonfinite == NONFINITE_SKIP;
    if (!s->skipped || (skips && s->skipped <= (uint64_t)c->train.nonfinite_limit)) return 0;
    if (skips) snprintf(row, sizeof row, " in %llu steps in a row", (unsigned long long)s->skipped);
    return err_set(e, E_NONFINITE, "step %llu: %s is not finite%s; try a smaller train.learning_rate, and look for NaN "
                   "and very large values in the data", (unsigned long long)r->o.step,
                   nonfinite_text(s->job->graph, r->rep[0].nonfinite, what, sizeof what), row);
}

/* Publishes the oldest task when every rank has reported it. Steps follow without a gap: a step's time begins at the
 * end of the previous step, if that is later than its own beginning. */
static int publish(struct control *s, const struct coordinator *l, bool *busy, struct err *e)
{
    if (!complete(s)) return 0;
    struct result *r = s->open[s->first_open % OPEN_RESULTS];
    uint64_t began = s->began[s->first_open % OPEN_RESULTS], ended = s->ended[s->first_open % OPEN_RESULTS];
    r->ns = ended - (began > s->last_end ? began : s->last_end);
    s->last_end = r->ended = ended;
    *busy = true;
    if (eval_gather_take(s, l, e)) return -1;
    while (!queue_put(l->results, r)) {
        if (atomic_load(abort_code())) return -1;
        exec_beat_poll(s->beat);
        control_pause();
    }
    s->first_open++;
    l->wake(l->ctx);
    return check_finite(s, r, e);
}

/* Informs the loop that a checkpoint has begun, after all steps before it. */
static void publish_mark(struct control *s, const struct coordinator *l)
{
    if (!s->mark.set || s->first_open < s->mark.after) return;
    s->mark.r->o = s->mark.o;
    if (!queue_put(l->results, s->mark.r)) return;
    s->mark.set = false;
    l->wake(l->ctx);
}

/* Publishes the costs of the first steps when all ranks have sent them. */
static void publish_costs(struct control *s, const struct coordinator *l)
{
    if (s->of_costs != s->n || !l->costs) return;
    queue_put(l->costs, s->costs);                        /* never full: this happens once */
    s->of_costs++;
    l->wake(l->ctx);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* Adds the task to the open ones before other ranks receive it: they may report it before rank 0 itself has begun. */
static int announce(struct control *s, const struct task *t, struct err *e)
{
    struct result *r = s->open[s->n_opened++ % OPEN_RESULTS];
    r->o = t->o;
    r->epoch = t->epoch;
    r->last = t->last;
    return send_all(s, &t->o, sizeof t->o + (size_t)t->o.n * sizeof(int64_t), e);
}

/* Makes the folder before other ranks receive the order. If that fails they do not receive it, and the task reports the
 * failure when it runs. */
static int announce_checkpoint(struct control *s, struct task *t, struct err *e)
{
    control_elsewhere(s, SHUTDOWN_STEP, "preparing a checkpoint");
    save_prepare(s->save, &t->o);
    control_elsewhere(s, SHUTDOWN_STEP, NULL);
    t->o.code = save_prepared(s->save);
    return t->o.code ? 0 : send_all(s, &t->o, sizeof t->o, e);
}

static bool may_take(struct control *s)
{
    if (s->tasks.n >= TASKS || control_steps(s, s->tasks.n) >= AHEAD_TASKS) return false;
    if (s->n_opened - s->first_open >= OPEN_RESULTS) return false;
    if (!s->tasks.n) return true;
    const struct order *last = &tasks_at(&s->tasks, s->tasks.n - 1)->o;
    return control_is_step(last) || last->kind == ORDER_CHECKPOINT;
}

/* Takes orders from the scheduler until one step is running and the next is known. The order that ends a run waits
 * until all others are done. */
static int take_orders(struct control *s, const struct coordinator *l, int wait_ms, struct err *e)
{
    while (may_take(s)) {
        struct task *t = tasks_at(&s->tasks, s->tasks.n);
        if (!queue_get(l->orders, t, wait_ms)) break;
        s->tasks.n++;
        wait_ms = 0;
        if (control_is_step(&t->o) && announce(s, t, e)) return -1;
        if (t->o.kind == ORDER_CHECKPOINT && announce_checkpoint(s, t, e)) return -1;
    }
    return control_prefetch(s, e);
}

static int run_step(struct control *s, struct err *e)
{
    struct report mine;
    s->began[s->n_reports[0] % OPEN_RESULTS] = clock_ns();
    s->awaited_of = UINT64_MAX;                           /* the state changes now */
    return control_step(s, &mine, e) || coordinator_report(s, &mine, e) ? -1 : 0;
}

struct fetch { struct control *control; enum weights_what what; };

/* Looks for weights that are not finite when they are written. Other steps show them in the step that follows; after
 * the last step none follows. */
static int finite_check(const struct state_row *r, const void *plain, struct err *e)
{
    const float *x = plain;
    int64_t n = r->file.type == F32 && (r->trained || r->kind != STATE_WEIGHT) ? shape_count(&r->shape) : 0;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return err_set(e, E_NONFINITE, "%s is not finite after the last step; try a smaller train.learning_rate, "
                           "and look for NaN and very large values in the data", r->name);
    return 0;
}

static int fetch_row(const struct fetch *f, int i, void *buf, const void **at, struct err *e)
{
    struct control *s = f->control;
    const struct state_row *r = &s->job->pl->state[i];
    if (atomic_load(abort_code())) return err_set(e, atomic_load(abort_code()), "stopped");
    int writer = placement_writer(s->job->pl, r);
    if (writer == 0) return weights_get(s->exec, f->what, i, buf, at, e);
    struct order o = {.kind = ORDER_SAVE, .row = i, .what = (int32_t)f->what};
    if (s->tp->ops->send_msg(s->tp, writer, CONTROL_ORDER, &o, sizeof o, e)) return -1;
    return state_recv(s, writer, buf, state_plain_bytes(r), e);
}

static int get_row(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct fetch *f = ctx;
    if (fetch_row(f, i, buf, at, e)) return -1;
    return f->what == WEIGHTS_ALL ? finite_check(&f->control->job->pl->state[i], *at, e) : 0;
}

/* The folders for other programs. */
static int folders_write(const struct coordinator *l, struct fetch *f, struct err *e)
{
    const struct job *j = f->control->job;
    const char *shown = j->conf->run.directory;
    const int dir = l->files->weights.dir;
    struct lora_merge m = {.g = j->graph, .pl = j->pl, .get = get_row, .ctx = f};
    if (conf_adapts(j->conf) && adapter_folder_write(dir, shown, l->model, abort_code(), e)) return -1;
    if (!lora_leaves_model(j->conf)) return 0;
    const struct st_body b = lora_merge_body(&m);
    const struct st_body *merged = conf_adapts(j->conf) ? &b : NULL;
    const int bad = model_folder_write(dir, shown, l->model, j->conf, merged, abort_code(), e);
    weights_rows_free(&m.rows);
    return bad;
}

static int save(struct control *s, const struct coordinator *l, const struct order *o, struct err *e)
{
    struct result *r = s->open[0];
    uint64_t began = clock_ns();
    struct fetch f = {s, (enum weights_what)o->what};
    bool gradients = f.what == WEIGHTS_GRADIENTS;
    struct weights_file file = {gradients ? &l->files->gradients : &l->files->weights, f.what, abort_code(),
                                gradients ? NULL : save_base(s->save)};
    r->o = *o;
    control_elsewhere(s, SHUTDOWN_END, gradients ? "writing gradients" : "writing weights");
    if (weights_save(&file, s->job->pl, get_row, &f, r->hash, e)) return -1;
    if (!gradients && l->model && folders_write(l, &f, e)) return -1;
    r->ns = clock_ns() - began;
    while (!queue_put(l->results, r)) exec_beat_poll(s->beat), control_pause();
    l->wake(l->ctx);
    return 0;
}

/* No step or checkpoint is running on any rank. */
static int roll_back(struct control *s, const struct coordinator *l, struct err *e)
{
    struct result *r = s->open[0];
    r->o = tasks_head(&s->tasks)->o;
    s->awaited_of = UINT64_MAX;
    if (send_all(s, &r->o, sizeof r->o, e) || control_rollback(s, &r->damaged, e)) return -1;
    r->o.n_skipped = exec_past(s->exec).n_skipped;
    while (!queue_put(l->results, r)) exec_beat_poll(s->beat), control_pause();
    l->wake(l->ctx);
    return 0;
}

/* Gives the file of predictions its name when all are in it: a run that was stopped leaves none. */
static int predictions_end(struct control *s, const struct coordinator *l, struct err *e)
{
    if (s->job->prompts && generation_complete(l->generation)) return generation_commit(l->generation, e);
    if (!l->predict || !predict_complete(l->predict)) return 0;
    control_elsewhere(s, SHUTDOWN_END, "writing predictions");
    return predict_commit(l->predict, e);
}

static int begin_checkpoint(struct control *s, struct err *e)
{
    int did = s->mark.set ? 0 : control_checkpoint(s, &s->mark.o, e);
    if (!did) control_pause();
    if (did <= 0) return did;
    s->mark.after = s->n_reports[0];
    s->mark.set = true;
    return 0;
}

/* Runs an order that needs all others to be done and their checkpoint written. 0: not yet. */
static int run_alone(struct control *s, const struct coordinator *l, bool *end, struct err *e)
{
    struct order o = tasks_head(&s->tasks)->o;
    int saved = save_await(s->save, e), bad;
    if (saved <= 0) return saved;
    if (o.kind == ORDER_ROLLBACK) return roll_back(s, l, e) ? -1 : 1;
    tasks_pop(&s->tasks);
    *end = o.kind == ORDER_STOP;
    if (*end) bad = predictions_end(s, l, e) || send_all(s, &o, sizeof o, e);
    else bad = save(s, l, &o, e);
    return bad ? -1 : 1;
}

/* Publishes whose report of the oldest open step this rank waits for. */
static void reports_await(struct control *s)
{
    bool open = s->first_open != s->n_opened;
    int whom = EXEC_WAITS_NOT;
    for (int r = s->n - 1; r >= 0 && open; r--) if (s->n_reports[r] <= s->first_open) whom = r;
    if (whom == s->awaited && open == s->awaits && s->first_open == s->awaited_of) return;
    s->awaits = open;
    s->awaited = whom;
    s->awaited_of = s->first_open;
    control_publish(s, open ? &s->open[s->first_open % OPEN_RESULTS]->o : NULL, whom);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static int turn(struct control *s, const struct coordinator *l, bool *end, struct err *e)
{
    bool busy = false, idle = !s->tasks.n && s->first_open == s->n_opened;
    exec_beat_poll(s->beat);
    if (take_orders(s, l, idle ? 5 : 0, e) || control_poll(s, e) || publish(s, l, &busy, e)) return -1;
    publish_costs(s, l);
    publish_mark(s, l);
    if (atomic_load(abort_code())) return err_set(e, atomic_load(abort_code()), "stopped");
    const struct task *t = tasks_head(&s->tasks);
    if (t && control_is_step(&t->o)) {
        if (s->n_reports[0] - s->first_open < RUN_AHEAD) return run_step(s, e);
    } else if (t && t->o.kind == ORDER_CHECKPOINT) {
        return begin_checkpoint(s, e);
    } else if (t && s->first_open == s->n_opened && !s->mark.set) {
        int did = run_alone(s, l, end, e);
        if (did) return did < 0 ? -1 : 0;
    }
    reports_await(s);
    if (!busy && !idle) control_pause();
    return 0;
}

static void listen_for(struct control *s, int ms, int most_failed)
{
    for (uint64_t end = clock_ns() + DEADLINE_NS(ms); clock_ns() < end && s->n_failed < most_failed; control_pause())
        control_listen(s);
}

/* The first cause wins. A rank that lost a neighbour or was stopped does not know the cause. So rank 0 waits for other
 * reports before its own failure counts. It waits for less time than a rank that lost rank 0 (base/deadline.h). */
void coordinator_fail(struct control *s, struct err *e)
{
    struct abort_order m = {.o.kind = ORDER_ABORT};
    struct err none = {0};
    if (e->code == E_DEVICE) abort_doubt(e->text);
    else abort_request(0, e->code, e->text);
    if (shutdown_leave() != DO_TELL) return;
    listen_for(s, shutdown_now().listen, INT_MAX);
    int ms = shutdown_now().answer;
    abort_failure(&m.f);
    if (m.f.e.code == E_DEVICE) abort_event(ON_CAUSE, &m.f);   /* in doubt, and no better cause has come */
    *e = m.f.e;
    if (!send_all(s, &m.o, sizeof m, &none)) listen_for(s, ms, s->n - 1);
}

int coordinator_run(struct control *s, const struct coordinator *l, struct err *e)
{
    const char *shown = s->job->conf->run.directory;
    int bad = l->model ? adapter_folder_begin(l->files->weights.dir, shown, l->model, e) : 0;
    s->skipped = l->skipped;
    for (bool end = false; !end && !bad;) bad = turn(s, l, &end, e);
    if (bad) coordinator_fail(s, e);
    return bad ? -1 : 0;
}
