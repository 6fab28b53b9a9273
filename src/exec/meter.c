/* The time breakdown by the host's clock, and the calls of the other receivers: stream, spans, times of kernels. */
#include <stdlib.h>
#include <string.h>
#include "exec/meter_int.h"

int meter_to(struct exec *s, enum account part, struct err *e)
{
    meter_host(s, part);
    return stream_to(s, part, e);
}

/* Events on the stream record the device's activity. */
static void span_add(struct exec *s, enum span_kind kind, uint64_t from, uint64_t to, int index)
{
    bool of_stream = s->meter->stream && kind != SPAN_MESSAGE && kind != SPAN_STEP;
    if (s->meter->trace && !of_stream) trace_span(s, kind, from, to, index);
}

int meter_open(struct exec *s, struct err *e)
{
    s->meter = mem_alloc(sizeof *s->meter);
    s->meter->part = ACC_OTHER;
    trace_open(s);
    return stream_open(s, e);
}

void meter_close(struct exec *s)
{
    if (!s->meter) return;
    profile_free(s->meter->profiled);
    trace_close(s);
    stream_close(s);
    free(s->meter);
}

/* ---- steps and actions ----------------------------------------------------------------------- */

int meter_step(struct exec *s, const struct order *o, struct report *r, struct err *e)
{
    struct meter *m = s->meter;
    memset(m->ns, 0, sizeof m->ns);
    m->part = ACC_OTHER;
    m->act = -1;
    m->began = m->since = clock_ns();
    if (m->ended) r->idle_ns = m->began - m->ended;
    trace_step(s, o);
    int bad = stream_step(s, e);
    m->traced = trace_on(s);
    m->watched = m->profile || m->traced || stream_fine(s);
    return bad;
}

int meter_step_end(struct exec *s, bool failed, struct report *r, struct err *e)
{
    struct meter *m = s->meter;
    m->ended = meter_host(s, ACC_OTHER);
    int bad = failed ? 0 : stream_collect(s, m->began, m->ended, e);
    span_add(s, SPAN_STEP, m->began, m->ended, 0);
    for (int i = 0; i < ACC_COUNT; i++) { r->ns[i] = m->ns[i]; r->total_ns += m->ns[i]; }
    return bad;
}

void meter_act(struct exec *s, int act)
{
    s->meter->act = act;
    if (s->meter->traced) s->meter->act_began = clock_ns();
}

void meter_act_end(struct exec *s)
{
    if (s->meter->traced) span_add(s, SPAN_ACT, s->meter->act_began, clock_ns(), s->meter->act);
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool meter_marks_calls(const struct exec *s) { return stream_fine(s); }

int meter_program(struct exec *s, enum account part, struct err *e)
{
    return stream_fine(s) ? 0 : stream_to(s, part, e);
}

static int call_index(const struct exec *s, const struct kop *k) { return k->phase * s->q.sel->n_groups + k->group; }

/* Only a whole micro-batch is recorded; a plan cannot use the times of others. */
static bool call_noted(const struct exec *s, const struct act *a)
{
    const struct plan *p = s->q.plan[s->plan];
    return s->meter->profile && p->mb_n[a->mb] == p->mb_n[0];
}

int meter_watch_begin(struct exec *s, const struct kop *k, const struct act *a, struct err *e)
{
    struct meter *m = s->meter;
    enum account part = act_part(a->op, k->phase);
    m->call.ns = 0;
    if (call_noted(s, a)) noted_begin(&m->call);
    m->call_began = meter_host(s, part);
    return stream_fine(s) ? stream_kernel(s, part, call_index(s, k), e) : 0;
}

int meter_watch_run(struct exec *s, struct be_kernel *kernel, const struct be_call *c, struct err *e)
{
    uint64_t ns;
    if (!s->meter->stream || !s->meter->profile) return s->ops->run(s->be, kernel, c, e);
    if (stream_timed(s, kernel, c, &ns, e)) return -1;
    s->meter->call.ns += ns;
    return 0;
}

void meter_watch_end(struct exec *s, const struct kop *k, const struct act *a)
{
    struct meter *m = s->meter;
    uint64_t now = meter_host(s, ACC_TRANSFER);
    if (call_noted(s, a)) {
        if (!m->stream) m->call.ns = now - m->call_began;
        noted_end(&m->call);
        profile_note(m->profile, s->plan, (enum phase)k->phase, k->group, &m->call);
    }
    span_add(s, SPAN_KERNEL, m->call_began, now, call_index(s, k));
}

/* ---- messages and loads ---------------------------------------------------------------------- */

void meter_wait_begin(struct exec *s, struct meter_wait *w)
{
    *w = (struct meter_wait){.before = s->meter->part, .part = ACC_COUNT};
}

int meter_wait_for(struct exec *s, struct meter_wait *w, enum account part, struct err *e)
{
    uint64_t now = meter_host(s, part);
    if (part == w->part) return 0;
    if (w->part != ACC_COUNT) span_add(s, SPAN_WAIT, w->from, now, (int)w->part);
    w->part = part;
    w->from = now;
    return stream_to(s, part, e);
}

void meter_wait_end(struct exec *s, struct meter_wait *w)
{
    if (w->part == ACC_COUNT) return;
    uint64_t now = s->meter->part == w->before ? s->meter->since : meter_host(s, w->before);
    span_add(s, SPAN_WAIT, w->from, now, (int)w->part);
}

void meter_message(struct exec *s, uint64_t posted, int act)
{
    if (s->meter->traced) span_add(s, SPAN_MESSAGE, posted, clock_ns(), act);
}

uint64_t meter_load(struct exec *s) { return s->meter->profile ? clock_ns() : 0; }

void meter_load_end(struct exec *s, uint64_t began)
{
    if (s->meter->profile) profile_note_load(s->meter->profile, s->plan, clock_ns() - began);
}

void exec_idle_since(struct exec *s) { s->meter->ended = clock_ns(); }
