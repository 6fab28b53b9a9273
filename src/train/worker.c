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
    int bad = weights_get(s->exec, (enum weights_what)o->what, i, plain, e) || state_send(s, plain, bytes, e);
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

/* Reports the failure to rank 0, then waits until rank 0 has informed all ranks. Rank 0 prints the line, so it should
 * exit first. */
static void own_failure(struct control *s, struct err *e)
{
    struct report r = {.rank = s->rank, .code = e->code};
    struct err first, none = {0}, again = {0};
    struct tp_message m = {0, CONTROL_ORDER, &s->fresh->o, s->order_bytes};
    uint64_t until = clock_ns() + DEADLINE_NS(DEADLINE_GRACE);
    if (e->code == atomic_load(abort_code()) && shutdown_get(&first)) *e = first;
    else heartbeat_where(s->rank, e);                     /* this failure came first */
    snprintf(r.text, sizeof r.text, "%.*s", (int)sizeof r.text - 1, e->text);
    heartbeat_bye(e->code, e->text);
    shutdown_let_kill();
    if (send_report(s, &r, &none)) return;
    while (clock_ns() < until && !none.code) {
        s->tp->ops->progress(s->tp, &again);       /* it may fail again, but messages still arrive */
        int got = s->tp->ops->recv_msg(s->tp, &m, &none);
        if (got > 0 && s->fresh->o.kind == ORDER_ABORT) { e->code = s->fresh->o.code; return; }
        if (got == 0) control_pause();
    }
}

/* Answers an abort; rank 0 waits for the answer before it ends the job. */
static void obey(struct control *s, struct err *e)
{
    struct err none = {0}, first = {0};
    shutdown_get(&first);
    struct report r = {.rank = s->rank, .code = first.code};
    e->code = first.code;
    heartbeat_bye(e->code, first.text);
    shutdown_let_kill();
    if (!send_report(s, &r, &none)) s->tp->ops->progress(s->tp, &none);
}

void worker_fail(struct control *s, struct err *e)
{
    if (s->abort_ordered) obey(s, e);
    else own_failure(s, e);
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
