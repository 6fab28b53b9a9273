/* The interpreter: for each action of the row wait for its operands, run its program or post its transfer. No decisions
 * about schedules. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "exec/stage_int.h"
#include "optim/optim.h"

int stage_aborted(const struct stage *s, struct err *e)
{
    int code = s->q.abort ? atomic_load_explicit(s->q.abort, memory_order_relaxed) : 0;
    return code ? err_set(e, code, "stopped") : 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Whose fault a wait is. */
static enum account wait_part(const struct pending *p, enum tp_state state)
{
    return !p->send && state >= TP_ANNOUNCED ? p->info->part : p->info->wait;
}

/* Polls eagerly, then lets others run: ranks may outnumber cores. */
void wait_politely(unsigned tries)
{
    if (tries < 200) return;
    if (tries < 20000) { sched_yield(); return; }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void span_add(struct stage *s, enum span_kind kind, uint64_t from, uint64_t to, int index)
{
    /* what the device did when is known by its marks */
    bool of_lane = s->lane && kind != SPAN_MESSAGE && kind != SPAN_STEP;
    if (s->trace && !of_lane) trace_span(s, kind, from, to, s->plan, index, s->step);
}

static enum tp_state pending_test(struct stage *s, struct pending *p)
{
    return p->done ? TP_DONE : s->tp->ops->test(s->tp, &p->req);
}

/* While tracing, messages are looked at after every kernel: otherwise their end would be seen only when somebody needs
 * them. */
static void posts_look(struct stage *s)
{
    for (int i = 0; i < s->n_pending; i++) {
        struct pending *p = &s->pending[i];
        if (p->done || s->tp->ops->test(s->tp, &p->req) != TP_DONE) continue;
        p->done = true;
        span_add(s, SPAN_MESSAGE, p->posted, clock_ns(), p->act);
    }
}

/* Until the post is done, or its end is queued and joined by the lane. Waits are marked on the lane, too: the device
 * gets to them when it has nothing else to do, or at once when it is behind the host, and then they take no time. */
static int pending_wait(struct stage *s, struct pending *p, struct err *e)
{
    enum tp_state state = pending_test(s, p);
    enum account part = s->part, was = ACC_COUNT;
    uint64_t from = 0;
    for (unsigned tries = 0; state < TP_QUEUED; tries++) {
        enum account now = wait_part(p, state);
        account_to(s, now);
        if (now != was && was != ACC_COUNT) span_add(s, SPAN_WAIT, from, s->since, (int)was);
        if (now != was && lane_to(s, now, e)) return -1;
        if (now != was) { was = now; from = s->since; }
        if (stage_aborted(s, e) || s->tp->ops->progress(s->tp, e)) return -1;
        state = s->tp->ops->test(s->tp, &p->req);
        if (state < TP_QUEUED) wait_politely(tries);
    }
    if (state == TP_QUEUED && (lane_to(s, wait_part(p, state), e) || s->tp->ops->join(s->tp, &p->req, e))) return -1;
    if (s->part != part) account_to(s, part);
    if (was != ACC_COUNT) span_add(s, SPAN_WAIT, from, s->since, (int)was);
    if (!p->done && trace_on(s)) span_add(s, SPAN_MESSAGE, p->posted, clock_ns(), p->act);
    *p = s->pending[--s->n_pending];
    return 0;
}

enum { WAIT_ALL = -1, WAIT_PGRAD = -2 };

/* Waits for the posts that touch a slot: receives before it is read, sends before it is written; or for a whole kind of
 * posts. */
static int posts_wait(struct stage *s, int cls, int slot, bool sends, struct err *e)
{
    for (int i = 0; i < s->n_pending;) {
        struct pending *p = &s->pending[i];
        bool hit = cls == WAIT_ALL || (cls == WAIT_PGRAD ? p->info->chan == CHAN_PGRAD && !p->send
                                                         : p->cls == cls && p->slot == slot && p->send == sends);
        if (!hit) i++;
        else if (pending_wait(s, p, e)) return -1;
    }
    return 0;
}

/* What was joined by the lane still moves, and after the step nobody may drive it for a while. */
static int posts_settle(struct stage *s, struct err *e)
{
    if (posts_wait(s, WAIT_ALL, 0, false, e)) return -1;
    if (!s->tp->ops->idle) return 0;
    account_to(s, ACC_TRANSFER);
    for (unsigned tries = 0; !s->tp->ops->idle(s->tp); tries++) {
        if (stage_aborted(s, e) || s->tp->ops->progress(s->tp, e)) return -1;
        wait_politely(tries);
    }
    account_to(s, ACC_OTHER);
    return 0;
}

static void operands_place(struct bound *b, const struct act *a)
{
    const struct opnd *o = b->p->opnd + a->opnd;
    for (int i = 0; i < a->n_opnd; i++, o++)
        for (int j = 0; j < a->n_mb; j++) b->slot[o->cls * b->p->n_mb + a->mb + j] = o->slot + j;
}

static int operands_wait(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct opnd *o = b->p->opnd + a->opnd;
    operands_place(b, a);
    for (int i = 0; i < a->n_opnd; i++, o++)
        for (int j = 0; j < a->n_mb; j++) {
            if ((o->mode & OPND_READ) && posts_wait(s, o->cls, o->slot + j, false, e)) return -1;
            if ((o->mode & OPND_WRITE) && posts_wait(s, o->cls, o->slot + j, true, e)) return -1;
        }
    return 0;
}

/* ---- computing ------------------------------------------------------------------------------- */

/* Where a tensor's samples from `at` on lie, of one that lies at p. */
static void *samples_at(const struct stage *s, void *p, int tensor, int at)
{
    return p && at ? (char *)p + (size_t)at * select_sample_bytes(s->q.sel, tensor) : p;
}

/* n samples of an action of one mb, from `at` on. */
static void call_make(const struct stage *s, const struct bound *b, const struct kop *k, const struct act *a, int at,
                      int n, struct be_call *c)
{
    const struct group *g = &s->q.sel->group[k->group];
    int mb = a->mb;
    memset(c, 0, sizeof *c);
    c->n = n;
    c->block = s->block;
    c->sample = s->sample + b->p->mb_first[mb] + at;
    for (int i = 0; i < g->n_in; i++) {
        c->in[i] = samples_at(s, place_at(s, b, &k->in[i], mb), g->in[i], at);
        c->gin[i] = samples_at(s, place_at(s, b, &k->gin[i], mb), g->in[i], at);
    }
    c->out = samples_at(s, place_at(s, b, &k->out, mb), g->out, at);
    c->gout = samples_at(s, place_at(s, b, &k->gout, mb), g->out, at);
    c->extra = place_at(s, b, &k->extra, mb);
    if (c->extra) c->extra = (char *)c->extra + (size_t)(at / b->p->req.split) * plan_part_extra(b->p, g);
    c->gin_acc = k->gin_acc;
    for (int i = 0; i < g->n_param; i++) {
        c->param[i] = place_at(s, b, &k->param[i], mb);
        c->pgrad[i] = place_at(s, b, &k->pgrad[i], mb);
    }
    c->pgrad_acc = !(a->flags & ACT_FIRST) || at > 0;
    c->derived = place_at(s, b, &k->derived, mb);
    c->work = k->work.space == SP_NONE ? s->work.at : place_at(s, b, &k->work, mb);
}

/* One kernel call of the program. took: ns, if the backend is asynchronous and kernels are noted one by one. */
static int kop_run(struct stage *s, struct bound *b, const struct kop *k, const struct act *a, uint64_t *took,
                   struct err *e)
{
    const struct calls *calls = &b->calls[(b->size_of[a->mb] * PH_COUNT + k->phase) * s->q.sel->n_groups + k->group];
    int all = b->p->mb_n[a->mb];
    for (int at = 0; at < all; at += calls->n) {
        struct be_call c;
        uint64_t ns = 0;
        int n = all - at < calls->n ? all - at : calls->n;
        struct be_kernel *kernel = n < calls->n ? calls->rest : calls->kernel;
        call_make(s, b, k, a, at, n, &c);
        if (s->lane && s->profile ? lane_timed(s, kernel, &c, &ns, e) : s->ops->run(s->be, kernel, &c, e))
            return err_where(e, "%s", s->g->node[s->q.sel->group[k->group].node[0]].name);
        *took += ns;
    }
    return 0;
}

/* A program in two branches, which it is only where it is recorded. */
static int branches_record(struct stage *s, struct bound *b, const struct prog *g, const struct act *a, struct err *e)
{
    int asides = 0, passed = 0;                          /* pieces aside, and those that are joined */
    uint64_t took = 0;
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        bool aside = k->phase == PH_BWD_WEIGHTS;
        bool due = i >= ASIDE_REACH && g->k[i - ASIDE_REACH].phase == PH_BWD_WEIGHTS;
        if (due && s->ops->join(s->be, ++passed, e)) return -1;
        if ((aside && s->ops->aside(s->be, true, e)) || kop_run(s, b, k, a, &took, e) ||
            (aside && s->ops->aside(s->be, false, e)))
            return -1;
        asides += aside;
    }
    return s->ops->join(s->be, asides, e);
}

static int calls_run(struct stage *s, struct bound *b, const struct prog *g, const struct act *a, struct err *e)
{
    bool notes = s->profile && b->p->mb_n[a->mb] == b->p->mb_n[0];
    if (s->recording && g->aside) return branches_record(s, b, g, a, e);
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        struct noted noted;
        if (stage_aborted(s, e)) return -1;
        enum account part = act_part(a->op, k->phase);
        if (notes) noted_begin(&noted);
        account_to(s, part);
        uint64_t began = s->since, took = 0;
        if (lane_fine(s) && lane_kernel(s, part, k->phase * s->q.sel->n_groups + k->group, e)) return -1;
        if (kop_run(s, b, k, a, &took, e)) return -1;
        /* also with nothing posted: this is where another rank's failure is heard */
        account_to(s, ACC_TRANSFER);
        if (notes) {
            noted.ns = s->lane ? took : s->since - began;
            noted_end(&noted);
            profile_note(s->profile, b->index, (enum phase)k->phase, k->group, &noted);
        }
        span_add(s, SPAN_KERNEL, began, s->since, k->phase * s->q.sel->n_groups + k->group);
        if (s->tp->ops->progress(s->tp, e)) return -1;
        if (trace_on(s)) posts_look(s);
    }
    account_to(s, ACC_OTHER);
    return 0;
}

/* The program for each micro-batch of the action, ascending. */
static int prog_calls_run(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    struct act one = *a;
    one.n_mb = 1;
    for (; one.mb < a->mb + a->n_mb; one.mb++, one.flags &= (uint8_t)~ACT_FIRST)
        if (calls_run(s, b, act_prog(b->p, a), &one, e)) return -1;
    return 0;
}

typedef int calls_fn(struct stage *s, struct bound *b, const struct act *a, struct err *e);

/* Calls as they were recorded, where the backend can: their arguments are the same in every step. Steps whose account
 * is fine run call by call. index: of the action in the row, or the row's length for what comes after it. */
static int recorded(struct stage *s, struct bound *b, int index, calls_fn *calls, const struct act *a, struct err *e)
{
    struct be_graph *graph = b->graph && !lane_fine(s) ? b->graph[index] : NULL;
    return graph ? s->ops->replay(s->be, graph, e) : calls(s, b, a, e);
}

static int prog_run(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    if (!act_prog(b->p, a)->n) return 0;
    if (s->lane && !lane_fine(s) && lane_to(s, act_info[a->op].part, e)) return -1;
    return recorded(s, b, (int)(a - b->p->row[s->rank]), prog_calls_run, a, e);
}

/* Of several micro-batches only the last may be smaller. */
static bool warms_alike(const struct bound *b, const struct act *x, const struct act *y)
{
    return x->op == y->op && x->stage == y->stage && x->flags == y->flags && x->n_mb == y->n_mb &&
           b->size_of[x->mb + x->n_mb - 1] == b->size_of[y->mb + y->n_mb - 1];
}

/* Every kernel of a plan once, before the first step: libraries load kernels when they are first used, and wait for the
 * device then, which in a step may itself wait for another rank's host. What is computed is overwritten before anybody
 * reads it. */
int stage_warm(struct stage *s, struct bound *b, struct err *e)
{
    const struct act *row = b->p->row[s->rank];
    for (int i = 0; i < b->p->row_n[s->rank]; i++) {
        const struct act *a = &row[i];
        if (act_info[a->op].kind != KIND_PROGRAM) continue;
        int k = 0;
        while (k < i && !warms_alike(b, &row[k], a)) k++;
        if (k == i && prog_calls_run(s, b, a, e)) return -1;
    }
    return lane_drain(s, e);
}

/* ---- posting --------------------------------------------------------------------------------- */

/* The accumulator of one use of a parameter, as a stage holds it. */
static void *use_at(const struct stage *s, int stage, int param, int use)
{
    for (int k = 0; k < s->q.pl->n_params[stage]; k++) {
        const struct stage_param *sp = &s->q.pl->param[stage][k];
        for (int u = 0; sp->param == param && u < sp->n_uses; u++)
            if (sp->use[u] == use) return s->grad.at + sp->use_off[u];
    }
    return NULL;
}

static void *param_held_at(const struct stage *s, int stage, int param)
{
    for (int k = 0; k < s->q.pl->n_params[stage]; k++)
        if (s->q.pl->param[stage][k].param == param) return s->param.at + s->q.pl->param[stage][k].off;
    return NULL;
}

static void *channel_buffer(const struct stage *s, const struct bound *b, const struct act *a, const struct channel *c)
{
    if (c->kind == CHAN_PGRAD) return use_at(s, a->stage, c->param, c->tensor);
    if (c->kind == CHAN_PARAM) return param_held_at(s, a->stage, c->param);
    const struct stage_plan *st = &b->p->stage[a->stage];
    return place_at(s, b, c->kind == CHAN_ACT ? &st->act_place[c->tensor] : &st->grad_place[c->tensor], a->mb);
}

static int post(struct stage *s, struct bound *b, const struct act *a, const struct order *o, struct err *e)
{
    const struct channel *c = &b->p->chan[a->chan];
    const struct act_info *info = &act_info[a->op];
    bool send = info->kind == KIND_SEND;
    size_t bytes = act_bytes(b->p, a);
    void *at = channel_buffer(s, b, a, c);
    if (!at) return err_set(e, E_INTERNAL, "channel %d has no buffer here", a->chan);
    struct tp_tag tag = {.step = o->step, .plan = (uint32_t)b->index, .mb = a->mb, .chan = (uint16_t)a->chan,
                         .samples = (uint16_t)(info->has_mb ? b->p->mb_n[a->mb] : 0), .bytes = bytes};
    struct pending *p = &s->pending[s->n_pending++];
    const struct opnd *od = a->n_opnd ? &b->p->opnd[a->opnd] : NULL;
    *p = (struct pending){.send = send, .cls = od ? (int16_t)od->cls : -3, .slot = od ? od->slot : 0, .info = info,
                         .act = (int)(a - b->p->row[s->rank])};
    account_to(s, info->part);
    p->posted = s->since;
    int bad = send ? s->tp->ops->post_send(s->tp, tp_rank_of(s, c->to_rank), &tag, at, &p->req, e)
                   : s->tp->ops->post_recv(s->tp, tp_rank_of(s, c->from_rank), &tag, at, &p->req, e);
    account_to(s, ACC_OTHER);
    return bad;
}

/* ---- the step -------------------------------------------------------------------------------- */

static int optimize(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    return stage_optimize(s, b, e);
}
static int params_changed(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    return stage_derive(s, true, e);
}

/* An error in between must not leave the lane recording. Who wants no graphs does without those that cannot be
 * recorded. */
static int record(struct stage *s, struct bound *b, int index, calls_fn *calls, const struct act *a, struct err *e)
{
    struct err why = {0};
    if (s->ops->capture_begin(s->be, e)) return -1;
    s->recording = true;
    int bad = calls(s, b, a, &why);
    s->recording = false;
    int ended = s->ops->capture_end(s->be, bad || !s->q.graphs ? NULL : &b->graph[index], &why);
    if ((!bad && !ended) || (ended > 0 && !s->q.graphs)) return 0;
    return err_set(e, why.code, "%s", why.text);
}

static calls_fn *recordable(const struct bound *b, const struct act *a)
{
    if (act_info[a->op].kind == KIND_OPTIMIZER) return optimize;
    return act_calls(b->p, a) ? prog_calls_run : NULL;
}

/* Before the first step: whatever calls need at their first use, in the backend and for each slot, is made now, and
 * steps make nothing. Who wants no graphs has that, too, but nothing is kept. */
int stage_record(struct stage *s, struct bound *b, struct err *e)
{
    const struct act *row = b->p->row[s->rank];
    bool derives = false;
    if (!b->graph) return 0;
    for (int i = 0; i < b->p->row_n[s->rank]; i++) {
        operands_place(b, &row[i]);
        calls_fn *calls = recordable(b, &row[i]);
        if (calls && record(s, b, i, calls, &row[i], e)) return -1;
    }
    for (int g = 0; g < s->q.sel->n_groups; g++) derives |= stage_derives(s, g);
    if (b->p->req.mode != PLAN_TRAIN || !derives) return 0;
    return record(s, b, b->p->row_n[s->rank], params_changed, NULL, e);
}

static int optimizer_run(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    if (posts_wait(s, WAIT_PGRAD, 0, false, e)) return -1;
    account_to(s, act_info[a->op].part);
    if (lane_to(s, act_info[a->op].part, e)) return -1;
    bool norm = act_info[a->op].kind == KIND_REDUCE;
    int bad = norm ? stage_norm(s, e) : recorded(s, b, (int)(a - b->p->row[s->rank]), optimize, a, e);
    account_to(s, ACC_OTHER);
    return bad;
}

static int act_run(struct stage *s, struct bound *b, const struct act *a, const struct order *o, struct err *e)
{
    if (operands_wait(s, b, a, e)) return -1;
    switch (act_info[a->op].kind) {
    case KIND_LOAD: return stage_load(s, b, a, e);
    case KIND_PROGRAM: return prog_run(s, b, a, e);
    case KIND_REDUCE: case KIND_OPTIMIZER: return optimizer_run(s, b, a, e);
    case KIND_SEND: case KIND_RECV: return post(s, b, a, o, e);
    }
    return err_set(e, E_INTERNAL, "unknown action %d", a->op);
}

static int block_set(struct stage *s, const struct bound *b, const struct order *o, const int64_t *id, struct err *e)
{
    struct be_block k = s->given;
    k.inv_weight = o->weight > 0 ? 1.0 / o->weight : 0;   /* 0: nothing in the batch counts */
    k.learning_rate = o->learning_rate;
    k.step = o->step;
    optim_list[s->optimizer]->once(&k);
    if (b->p->req.batch != o->n)
        return err_set(e, E_INTERNAL, "order of %d samples for a plan of %d", o->n, b->p->req.batch);
    if (!(o->weight >= 0 && isfinite(o->weight)))
        return err_set(e, E_DATA, "the samples of the batch weigh %g", o->weight);
    return s->ops->copy(s->be, s->block, &k, sizeof k, e) ||
                   s->ops->copy(s->be, s->sample, id, (size_t)o->n * sizeof *id, e)
               ? -1
               : 0;
}

static int row_run(struct stage *s, struct bound *b, const struct order *o, struct err *e)
{
    const struct act *a = b->p->row[s->rank];
    for (int i = 0; i < b->p->row_n[s->rank]; i++, a++) {
        uint64_t from = trace_on(s) ? clock_ns() : 0;
        lane_act(s, i);
        if (stage_aborted(s, e) || act_run(s, b, a, o, e)) {
            char text[32];
            return err_where(e, "rank %d, step %llu, %s", s->rank, (unsigned long long)o->step,
                             act_text(b->p, a, text));
        }
        if (trace_on(s)) span_add(s, SPAN_ACT, from, clock_ns(), i);
    }
    if (posts_settle(s, e)) return err_where(e, "rank %d, step %llu, end", s->rank, (unsigned long long)o->step);
    if (b->p->req.mode != PLAN_TRAIN) return 0;
    account_to(s, ACC_OPTIMIZER);
    if (lane_to(s, ACC_OPTIMIZER, e) || recorded(s, b, b->p->row_n[s->rank], params_changed, NULL, e))
        return err_where(e, "rank %d, step %llu, optimizer", s->rank, (unsigned long long)o->step);
    return 0;
}

int stage_step(struct stage *s, const struct order *o, const int64_t *id, struct report *r, struct err *e)
{
    *r = (struct report){.step = o->step, .rank = s->rank, .grad_norm = -1, .allocated_bytes = stage_taken(s)};
    memset(s->ns, 0, sizeof s->ns);
    s->part = ACC_OTHER;
    s->since = clock_ns();
    s->grad_norm = -1;
    if (s->last_end) r->idle_ns = s->since - s->last_end;
    uint64_t from = s->since;
    int bad = 0;
    s->step = o->step;
    s->plan = (int)o->plan;
    trace_step(s, o);
    if (stage_ahead_ready(s, o, id, e)) bad = -1;
    if (!bad) {
        struct bound *b = &s->bound[o->plan];
        bad = lane_step(s, e) || block_set(s, b, o, id, e);
        if (bad) err_where(e, "rank %d, step %llu, begin", s->rank, (unsigned long long)o->step);
        bad = bad || row_run(s, b, o, e);
        if (!bad && (lane_to(s, ACC_OTHER, e) || lane_drain(s, e) || stage_scores(s, b, o, r, e)))
            bad = err_where(e, "rank %d, step %llu, end", s->rank, (unsigned long long)o->step);
        stage_ahead_done(s);
    }
    account_to(s, ACC_OTHER);
    if (!bad && lane_collect(s, from, s->since, e))
        bad = err_where(e, "rank %d, step %llu, account", s->rank, (unsigned long long)o->step);
    s->last_end = s->since;
    span_add(s, SPAN_STEP, from, s->since, 0);
    r->grad_norm = s->grad_norm;
    r->resident_bytes = resident_peak() - s->resident_before;
    r->library_bytes = s->library_bytes;
    r->feed_bytes = s->feed_bytes;
    for (int i = 0; i < ACC_COUNT; i++) { r->ns[i] = s->ns[i]; r->total_ns += s->ns[i]; }
    if (bad && e) {
        r->code = e->code;
        snprintf(r->text, sizeof r->text, "%s", e->text);
    }
    return bad ? -1 : 0;
}
