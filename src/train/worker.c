/* Ranks other than 0: they receive an order, run it and report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "train/control_channel_int.h"
#include "train/weights.h"

static int send_report(struct control *s, const struct report *r, struct err *e)
{
    return s->tp->ops->send_msg(s->tp, 0, CONTROL_REPORT, r, sizeof *r, e);
}

static int run_step(struct control *s, struct err *e)
{
    struct report r;
    return control_step(s, &r, e) || send_report(s, &r, e) ? -1 : 0;
}

/* Sends a row of the registry that rank 0 requested; order.what selects weights or gradients. */
static int send_row(struct control *s, struct err *e)
{
    const struct order *o = &tasks_head(&s->tasks)->o;
    int i = o->row;
    if (i < 0 || i >= s->job->pl->n_state || !exec_owns(s->exec, i))
        return err_set(e, E_INTERNAL, "rank %d was asked for a tensor it does not own", s->rank);
    size_t bytes = state_plain_bytes(&s->job->pl->state[i]);
    void *plain = mem_alloc(bytes + 1);
    const void *at;
    int bad = weights_get(s->exec, (enum weights_what)o->what, i, plain, &at, e) || state_send(s, at, bytes, e);
    free(plain);
    tasks_pop(&s->tasks);
    return bad ? -1 : 0;
}

/* Checks for orders less often after a long time without any: the run pauses. */
static void rest(struct control *s)
{
    enum { LONG_NS = 20000000, NAP_NS = 2000000 };
    uint64_t now = clock_ns();
    if (!s->idle_since) s->idle_since = now;
    if (now - s->idle_since < LONG_NS) control_pause();
    else nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static int turn(struct control *s, bool *end, struct err *e)
{
    if (control_poll(s, e) || control_prefetch(s, e)) return -1;
    if (atomic_load(abort_code())) return err_set(e, atomic_load(abort_code()), "stopped");
    const struct task *t = tasks_head(&s->tasks);
    exec_beat_wait(s->beat, t ? EXEC_WAITS_NOT : 0);
    exec_beat_poll(s->beat);
    if (!t) { rest(s); return 0; }
    s->idle_since = 0;
    if (t->o.kind == ORDER_SAVE) return send_row(s, e);
    if (control_is_step(&t->o)) return run_step(s, e);
    if (t->o.kind == ORDER_CHECKPOINT) {
        struct order o;
        int did = control_checkpoint(s, &o, e);
        if (!did) control_pause();
        return did < 0 ? -1 : 0;
    }
    if (t->o.kind == ORDER_ROLLBACK) {
        struct err damaged;                               /* rank 0 decides what follows */
        int saved = save_await(s->save, e);
        if (saved > 0) return control_rollback(s, &damaged, e);
        control_pause();
        return saved;
    }
    *end = true;
    return 0;
}

/* Waits until rank 0 has informed all ranks. Rank 0 prints the line, so it should exit first. */
static void order_await(struct control *s, int ms, struct failure *f)
{
    struct err none = {0}, again = {0};
    struct tp_message m = {0, CONTROL_ORDER, &s->fresh->o, s->order_bytes};
    uint64_t until = clock_ns() + DEADLINE_NS(ms);
    while (clock_ns() < until && !none.code) {
        s->tp->ops->progress(s->tp, &again);              /* it may fail again, but messages still arrive */
        int got = s->tp->ops->recv_msg(s->tp, &m, &none);
        if (got > 0 && s->fresh->o.kind == ORDER_ABORT) {
            *f = ((const struct abort_order *)&s->fresh->o)->f;
            return;
        }
        if (got == 0) control_pause();
    }
}

/* Reports the failure to rank 0, or answers that this rank knows of rank 0's. */
void worker_fail(struct control *s, struct err *e)
{
    struct failure_report r = {.rank = s->rank};
    struct err none = {0};
    abort_request(s->rank, e->code, e->text);
    enum shutdown_action what = shutdown_leave();
    abort_failure(&r.f);
    heartbeat_bye(&r.f);
    bool sent = !s->tp->ops->send_msg(s->tp, 0, CONTROL_REPORT, &r, sizeof r, &none);
    if (sent && what == DO_TELL) order_await(s, shutdown_now().order, &r.f);
    else if (sent) s->tp->ops->progress(s->tp, &none);
    shutdown_let_kill();
    *e = r.f.e;
}

int worker_run(struct control *s, struct err *e)
{
    for (bool end = false; !end;) {
        if (!turn(s, &end, e)) continue;
        worker_fail(s, e);
        return -1;
    }
    return 0;
}
