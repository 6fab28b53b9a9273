/* Activity of a rank in traced steps: spans in a buffer with space for all of them. So tracing allocates nothing and
 * only reads the clock. */
#include <stdlib.h>
#include "exec/meter_int.h"

struct trace { int n, cap, lost; bool on; struct span *v; };

/* Spans of one step: the step, its actions and their calls. A message has one for the whole, and two for waits: until
 * it is announced and until it is complete. An agreement of all ranks has one for its wait. */
static int spans_of(const struct plan *p, int rank)
{
    enum { OF_A_MESSAGE = 3 };
    int n = 1;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        n += 1 + act_calls(p, a) + (act_is_post(a->op) ? OF_A_MESSAGE : act_info[a->op].kind == KIND_REDUCE);
    }
    return n;
}

/* the first step only warms up, if there is another */
static uint64_t first_step(const struct exec *s) { return s->q.conf->train.steps == 1 ? 1 : 2; }

void trace_open(struct exec *s)
{
    int most = 0;
    if (!s->q.conf->run.trace) return;
    for (int i = 0; i < s->n_bound; i++) {
        int n = spans_of(s->bound[i].p, s->rank);
        if (n > most) most = n;
    }
    s->meter->trace = mem_alloc(sizeof *s->meter->trace);
    s->meter->trace->cap = most * (int)s->q.conf->run.trace_steps;
    s->meter->trace->v = mem_alloc((size_t)s->meter->trace->cap * sizeof *s->meter->trace->v);
}

void trace_close(struct exec *s)
{
    if (s->meter->trace) free(s->meter->trace->v);
    free(s->meter->trace);
}

void trace_step(struct exec *s, const struct order *o)
{
    if (!s->meter->trace) return;
    uint64_t first = first_step(s), last = first + (uint64_t)s->q.conf->run.trace_steps - 1;
    s->meter->trace->on = o->kind == STEP_TRAIN && o->step >= first && o->step <= last;
}

bool trace_on(const struct exec *s) { return s->meter->trace && s->meter->trace->on; }

void trace_span(struct exec *s, enum span_kind kind, uint64_t from, uint64_t to, int index)
{
    if (!trace_on(s)) return;
    if (s->meter->trace->n == s->meter->trace->cap) { s->meter->trace->lost++; return; }
    s->meter->trace->v[s->meter->trace->n++] = (struct span){
        .from = from, .to = to, .step = s->step, .kind = (int16_t)kind, .plan = (int16_t)s->plan, .index = index};
}

const struct span *exec_spans(const struct exec *s, int *n, int *lost)
{
    *n = s->meter->trace ? s->meter->trace->n : 0;
    *lost = s->meter->trace ? s->meter->trace->lost : 0;
    return s->meter->trace ? s->meter->trace->v : NULL;
}
