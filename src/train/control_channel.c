/* Messages between the ranks of a job, besides tensors. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "train/control_channel_int.h"

bool control_is_step(const struct order *o) { return o->kind == ORDER_TRAIN || o->kind == ORDER_EVAL; }

int control_steps(const struct control *s, int n)
{
    int k = 0;
    for (int i = 0; i < n; i++) k += control_is_step(&s->tasks.at[(s->tasks.first + i) % TASKS]->o);
    return k;
}

void control_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static int recv_orders(struct control *s, struct err *e)
{
    struct tp_message m = {0, CONTROL_ORDER, &s->fresh->o, s->order_bytes};
    while (s->tasks.n < TASKS) {
        int got = s->tp->ops->recv_msg(s->tp, &m, e);
        if (got <= 0) return got;
        const struct order *o = &s->fresh->o;
        if (m.n < sizeof *o || (control_is_step(o) && m.n != sizeof *o + (size_t)o->n * sizeof(int64_t)) ||
            (o->kind == ORDER_ABORT && m.n != sizeof(struct abort_order)))
            return err_set(e, E_INTERNAL, "rank %d heard an order of %zu bytes", s->rank, m.n);
        if (o->kind == ORDER_ABORT) {
            abort_event(ON_TOLD, &((const struct abort_order *)o)->f);
            return 0;
        }
        memcpy(tasks_at(&s->tasks, s->tasks.n++), s->fresh, s->task_bytes);
    }
    return 0;
}

static int recv_reports(struct control *s, struct err *e)
{
    union { struct report r; struct failure_report f; } u;
    for (;;) {
        struct tp_message m = {-1, CONTROL_REPORT, &u, sizeof u};
        int got = s->tp->ops->recv_msg(s->tp, &m, e);
        if (got <= 0) return got;
        bool fails = m.n == sizeof u.f;
        int rank = fails ? u.f.rank : u.r.rank;
        if ((!fails && m.n != sizeof u.r) || rank <= 0 || rank >= s->n)
            return err_set(e, E_INTERNAL, "a report of %zu bytes from rank %d", m.n, rank);
        if (fails) coordinator_failed(s, &u.f);
        else if (coordinator_report(s, &u.r, e)) return -1;
    }
}

static void costs_add(struct control *s, const double *x)
{
    for (int i = 0; i < s->n_costs; i++) s->costs[i] += x[i];
    s->of_costs++;
}

/* Rank 0 receives other ranks' numbers only after its own are ready. No reader needs them before that, and they arrive
 * soon after. */
static int recv_costs(struct control *s, struct err *e)
{
    struct tp_message m = {-1, CONTROL_COSTS, s->costs_received, (size_t)s->n_costs * sizeof *s->costs};
    while (s->of_costs && s->of_costs < s->n) {
        int got = s->tp->ops->recv_msg(s->tp, &m, e);
        if (got <= 0) return got;
        if (m.n != m.max) return err_set(e, E_INTERNAL, "costs of %zu bytes, not %zu", m.n, m.max);
        costs_add(s, s->costs_received);
    }
    return 0;
}

static int recv_saved(struct control *s, struct err *e)
{
    struct saved r;
    struct tp_message m = {-1, CONTROL_SAVED, &r, sizeof r};
    for (;;) {
        int got = s->tp->ops->recv_msg(s->tp, &m, e);
        if (got <= 0) return got;
        if (m.n != sizeof r || r.rank <= 0 || r.rank >= s->n || r.n < 0 || r.n > 2)
            return err_set(e, E_INTERNAL, "what a rank wrote of a checkpoint came in %zu bytes", m.n);
        save_reported(s->save, &r);
    }
}

/* Sends rank 0 the outcome of this rank's writer. */
static int send_saved(struct control *s, struct err *e)
{
    struct saved r;
    return save_report(s->save, &r) ? s->tp->ops->send_msg(s->tp, 0, CONTROL_SAVED, &r, sizeof r, e) : 0;
}

static int listen_all(void *ctx, struct err *e)
{
    struct control *s = ctx;
    if (s->n == 1) return 0;
    if (s->rank != 0) return recv_orders(s, e) || send_saved(s, e) ? -1 : 0;
    return recv_reports(s, e) || recv_costs(s, e) || recv_saved(s, e) ? -1 : 0;
}

int control_poll(struct control *s, struct err *e)
{
    return s->tp->ops->progress(s->tp, e) || listen_all(s, e) ? -1 : 0;
}

void control_listen(struct control *s)
{
    struct err again = {0}, none = {0};
    s->tp->ops->progress(s->tp, &again);
    listen_all(s, &none);
}

/* ---- messages of bytes and numbers ------------------------------------------------------------------------------- */

/* Waits for a message from another rank. Unlike a collective of the transport, it ends if the job fails. */
static int recv_bytes(struct control *s, struct tp_message m, void (*idle)(unsigned), struct err *e)
{
    const size_t bytes = m.max;
    const int from = m.from;
    int before = atomic_load(&s->beat->wait);
    exec_beat_wait(s->beat, from);
    for (unsigned tries = 0;; tries++) {
        exec_beat_poll(s->beat);
        if (control_poll(s, e)) return -1;
        if (atomic_load(abort_code())) return err_set(e, atomic_load(abort_code()), "stopped");
        int got = s->tp->ops->recv_msg(s->tp, &m, e);
        if (got < 0) return -1;
        if (got > 0 && m.n == bytes) {
            exec_beat_wait(s->beat, before);
            exec_beat_count(s->beat);
            return 0;
        }
        if (got > 0) return err_set(e, E_INTERNAL, "rank %d sent %zu bytes, not %zu", from, m.n, bytes);
        idle(tries);
    }
}

/* Numbers come soon, or when another rank has done its part of a step. Yields, because ranks may outnumber cores. */
static void idle_briefly(unsigned tries)
{
    if (tries < 20000) sched_yield();
    else control_pause();
}
static void idle_long(unsigned tries) { control_pause(); }

static int recv_numbers(struct control *s, int from, double *x, int n, struct err *e)
{
    return recv_bytes(s, (struct tp_message){from, CONTROL_STATE, x, (size_t)n * sizeof *x}, idle_briefly, e);
}

static size_t piece_at(const struct control *s, size_t at, size_t bytes)
{
    return bytes - at < s->piece ? bytes - at : s->piece;
}

int control_send(struct control *s, int stream, const void *p, size_t bytes, struct err *e)
{
    for (size_t at = 0; at < bytes; at += piece_at(s, at, bytes))
        if (s->tp->ops->send_msg(s->tp, 0, stream, (const char *)p + at, piece_at(s, at, bytes), e)) return -1;
    return 0;
}

int control_recv(struct control *s, int from, int stream, void *p, size_t bytes, struct err *e)
{
    for (size_t at = 0; at < bytes; at += piece_at(s, at, bytes)) {
        struct tp_message m = {from, stream, (char *)p + at, piece_at(s, at, bytes)};
        if (recv_bytes(s, m, idle_long, e)) return -1;
    }
    return 0;
}

int state_send(struct control *s, const void *p, size_t bytes, struct err *e)
{
    return control_send(s, CONTROL_STATE, p, bytes, e);
}

int state_recv(struct control *s, int from, void *p, size_t bytes, struct err *e)
{
    return control_recv(s, from, CONTROL_STATE, p, bytes, e);
}

static int send_numbers(struct control *s, int to, const double *x, int n, struct err *e)
{
    return s->tp->ops->send_msg(s->tp, to, CONTROL_STATE, x, (size_t)n * sizeof *x, e);
}

/* Rank 0 adds the terms in rank order. */
static int control_reduce(void *ctx, double *x, int n, struct err *e)
{
    struct control *s = ctx;
    if (s->rank != 0) return send_numbers(s, 0, x, n, e) || recv_numbers(s, 0, x, n, e) ? -1 : 0;
    if (n > s->n_terms) {
        s->terms = mem_resize(s->terms, (size_t)n * sizeof *s->terms);
        s->n_terms = n;
    }
    for (int rank = 1; rank < s->n; rank++) {
        if (recv_numbers(s, rank, s->terms, n, e)) return -1;
        for (int i = 0; i < n; i++) x[i] += s->terms[i];
    }
    for (int rank = 1; rank < s->n; rank++) if (send_numbers(s, rank, x, n, e)) return -1;
    return 0;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void control_fail(struct control *s, struct err *e)
{
    if (s->rank == 0) coordinator_fail(s, e);
    else worker_fail(s, e);
}

void control_publish(struct control *s, const struct order *o, int waits_for)
{
    struct exec_beat *b = s->beat;
    bool evaluates = o && o->kind == ORDER_EVAL;
    atomic_store(&b->where, 0);
    if (o) atomic_store(&b->step, o->step);
    exec_beat_wait(b, waits_for);
    atomic_store(&b->state, !o ? 0 : BEAT_IN | (evaluates ? BEAT_EVALUATES : 0) | (s->warm[evaluates] ? BEAT_WARM : 0));
    exec_beat_count(b);
}

/* The executor of an order; NULL: it is not for this rank. */
static struct exec *exec_of(const struct control *s, const struct order *o)
{
    return order_interim(o) ? interim_exec(s->interim) : s->exec;
}

int control_prefetch(struct control *s, struct err *e)
{
    while (s->n_prefetched < s->tasks.n && control_steps(s, s->n_prefetched) < AHEAD_TASKS) {
        const struct task *t = tasks_at(&s->tasks, s->n_prefetched);
        if (!control_is_step(&t->o) && t->o.kind != ORDER_CHECKPOINT) return 0;
        struct exec *runs = exec_of(s, &t->o);
        if (control_is_step(&t->o) && runs && exec_prefetch(runs, &t->o, t->id, e)) return -1;
        s->n_prefetched++;
    }
    return 0;
}

void control_elsewhere(struct control *s, enum shutdown_phase phase, const char *doing)
{
    shutdown_phase(phase, doing);
    control_publish(s, NULL, EXEC_WAITS_NOT);
    if (doing) atomic_store(&s->beat->state, BEAT_ELSEWHERE);
    exec_beat_count(s->beat);
    s->awaited_of = UINT64_MAX;                           /* rank 0 publishes again which rank it waits for */
}

int control_checkpoint(struct control *s, struct order *o, struct err *e)
{
    int saved = save_await(s->save, e);
    if (saved <= 0) return saved;
    *o = tasks_head(&s->tasks)->o;
    control_elsewhere(s, SHUTDOWN_STEP, "beginning a checkpoint");
    save_begin(s->save, o);
    control_elsewhere(s, SHUTDOWN_STEP, NULL);
    tasks_pop(&s->tasks);
    if (s->n_prefetched) s->n_prefetched--;
    return 1;
}

/* All ranks learn which ranks found damage (why->code), and rank 0 gets the text of the lowest of them. */
static int damage_agree(struct control *s, struct err *why, struct err *e)
{
    double *damaged = mem_alloc((size_t)s->n * sizeof *damaged);
    int lowest = 0, bad;
    damaged[s->rank] = why->code != 0;
    bad = control_reduce(s, damaged, s->n, e);
    while (lowest < s->n && damaged[lowest] == 0) lowest++;
    free(damaged);
    if (bad || lowest == 0 || lowest == s->n) return bad;
    if (s->rank == 0) return state_recv(s, lowest, why, sizeof *why, e);
    return s->rank == lowest ? state_send(s, why, sizeof *why, e) : 0;
}

int control_rollback(struct control *s, struct err *damaged, struct err *e)
{
    uint64_t step = tasks_head(&s->tasks)->o.step;
    *damaged = (struct err){0};
    tasks_pop(&s->tasks);
    control_elsewhere(s, SHUTDOWN_STEP, "reading a checkpoint");
    if (s->back(s->back_ctx, step, damaged) && damaged->code != E_DATA) {
        *e = *damaged;
        return err_where(e, "rank %d, going back to step %llu", s->rank, (unsigned long long)step);
    }
    if (damage_agree(s, damaged, e)) return -1;
    warmup_again(s->warmup, step);
    control_elsewhere(s, SHUTDOWN_STEP, NULL);
    return 0;
}

/* Runs an order. A rank without an executor for it only reports. */
static int order_run(struct control *s, const struct task *t, struct report *r, struct err *e)
{
    struct exec *runs = exec_of(s, &t->o);
    *r = (struct report){.step = t->o.step, .rank = s->rank};
    if (runs && order_interim(&t->o) && t->o.what & ORDER_TAKES_WEIGHTS && interim_weights(s->interim, e)) return -1;
    if (runs && exec_step(runs, &t->o, t->id, r, e)) return -1;
    if (order_interim(&t->o)) exec_idle_since(s->exec);
    return 0;
}

/* Runs a step, and publishes it for the failure detector. */
static int step_watched(struct control *s, const struct task *t, struct report *r, struct err *e)
{
    bool evaluates = t->o.kind == ORDER_EVAL;
    uint64_t began = clock_ns();
    control_publish(s, &t->o, EXEC_WAITS_NOT);
    if (order_run(s, t, r, e)) return -1;
    uint64_t ns = clock_ns() - began;
    if (ns > atomic_load(&s->beat->slowest_ns)) atomic_store(&s->beat->slowest_ns, ns);
    s->warm[evaluates] = true;
    control_publish(s, NULL, EXEC_WAITS_NOT);
    return 0;
}

int control_step(struct control *s, struct report *r, struct err *e)
{
    struct task *t = tasks_head(&s->tasks);
    shutdown_phase(t->o.kind == ORDER_EVAL ? SHUTDOWN_EVALUATION : SHUTDOWN_STEP, NULL);
    warmup_before(s->warmup, &t->o);
    if (step_watched(s, t, r, e) || eval_gather_send(s, &t->o, e)) return -1;
    const double *x = warmup_after(s->warmup, &t->o, r);
    tasks_pop(&s->tasks);
    s->n_prefetched--;
    if (x && s->rank == 0) costs_add(s, x);
    if (!x || s->rank == 0) return 0;
    return s->tp->ops->send_msg(s->tp, 0, CONTROL_COSTS, x, (size_t)s->n_costs * sizeof *x, e);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

struct control *control_new(struct tp *tp, const struct job *j)
{
    struct control *s = mem_alloc(sizeof *s);
    *s = (struct control){.tp = tp, .job = j, .rank = tp->ops->rank(tp), .n = tp->ops->size(tp), .piece = STATE_PIECE};
    s->beat = &s->unwatched;
    s->task_bytes = task_bytes(j);
    s->order_bytes = sizeof(struct order) + (size_t)job_order_samples(j) * sizeof(int64_t);
    if (s->order_bytes < sizeof(struct abort_order)) s->order_bytes = sizeof(struct abort_order);
    for (int i = 0; i < TASKS; i++) s->tasks.at[i] = mem_alloc(s->task_bytes);
    s->fresh = mem_alloc(s->task_bytes + sizeof(struct failure));   /* of an abort_order */
    s->mark.r = mem_alloc(result_bytes(s->n));
    for (int i = 0; i < OPEN_RESULTS; i++) s->open[i] = mem_alloc(result_bytes(s->n));
    s->n_reports = mem_alloc((size_t)s->n * sizeof *s->n_reports);
    s->has_failed = mem_alloc((size_t)s->n * sizeof *s->has_failed);
    return s;
}

struct exec_control control_of(struct control *s)
{
    return (struct exec_control){.listen = listen_all, .reduce = control_reduce, .ctx = s};
}

void control_exec(struct control *s, struct exec *exec, struct interim *interim)
{
    s->exec = exec;
    s->interim = interim;
    eval_gather_open(s);
}
void control_save(struct control *s, struct save *save) { s->save = save; }
void control_set_restore(struct control *s, int (*back)(void *ctx, uint64_t step, struct err *e), void *ctx)
{
    s->back = back;
    s->back_ctx = ctx;
}
void control_beat(struct control *s, struct exec_beat *beat) { s->beat = beat; }

void control_set_warmup(struct control *s, struct warmup_profile *p)
{
    s->warmup = p;
    s->n_costs = p ? warmup_count(s->job) : 0;
    s->costs = mem_alloc((size_t)(s->n_costs + 1) * sizeof *s->costs);
    s->costs_received = mem_alloc((size_t)(s->n_costs + 1) * sizeof *s->costs);
}

void control_free(struct control *s)
{
    if (!s) return;
    for (int i = 0; i < TASKS; i++) free(s->tasks.at[i]);
    for (int i = 0; i < OPEN_RESULTS; i++) free(s->open[i]);
    eval_gather_free(s);
    free(s->fresh);
    free(s->mark.r);
    free(s->n_reports);
    free(s->has_failed);
    free(s->terms);
    free(s->costs);
    free(s->costs_received);
    free(s);
}
