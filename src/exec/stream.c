/* Time on an asynchronous stream. The host enqueues a whole step before the device runs it, so the host's clock does
 * not show the device's work; events on the stream do. Between two neighbouring events exactly one part of the time
 * breakdown runs.
 *
 * Events cost a little on the stream, and gradients of inputs and weights alternate with every layer. So only some
 * steps ("fine" ones) record an event at every change. In the other steps a joined backward pass is one piece, divided
 * in the ratio of the last fine step. */
#include <stdlib.h>
#include <string.h>
#include "exec/meter_int.h"

enum { FINE_FIRST = 2, FINE_EVERY = 32 };
enum { HOLD_LEAST = 20000, HOLD_FIRST = 200000, HOLD_MOST = 2000000 };   /* ns */

/* from event i to event i + 1; kernel: -1 for none or several */
struct stream_piece { uint8_t part; int act, kernel; };
struct stream {
    /* events of this step; two more are reserved for kernels that are timed alone */
    int n, max;
    struct stream_piece *piece;
    bool fine;
    /* how long spin holds the stream while the host enqueues a kernel that is timed alone */
    uint64_t hold_ns;
    double weight_share;                                 /* of gradients: time of weights' by time of both */
};

/* One event for the step, one for every change within an action, three around each action, two for each chunk of state
 * that an update takes. */
static int marks_of(const struct plan *p, int rank)
{
    int n = 2 + 2 * (p->pl->state_file[rank].n_chunks + 1);
    for (int i = 0; i < p->row_n[rank]; i++) n += act_calls(p, &p->row[rank][i]) + 3;
    return n;
}

int stream_open(struct exec *s, struct err *e)
{
    if (!s->ops->stream) return 0;
    struct stream *l = s->meter->stream = mem_alloc(sizeof *l);
    for (int i = 0; i < s->n_bound; i++) {
        int n = marks_of(s->bound[i].p, s->rank);
        if (n > l->max) l->max = n;
    }
    l->piece = mem_alloc((size_t)l->max * sizeof *l->piece);
    l->weight_share = 0.5;
    l->hold_ns = HOLD_FIRST;
    return s->ops->event_reserve(s->be, l->max + 2, e);
}

void stream_close(struct exec *s)
{
    if (s->meter->stream) free(s->meter->stream->piece);
    free(s->meter->stream);
}

bool stream_fine(const struct exec *s) { return s->meter->stream && s->meter->stream->fine; }

/* Records an event where the part changes; in a traced step always. */
static int piece_begin(struct exec *s, int part, int kernel, struct err *e)
{
    struct stream *l = s->meter->stream;
    if (!l || l->n == l->max || (l->n && l->piece[l->n - 1].part == part && !trace_on(s))) return 0;
    l->piece[l->n] = (struct stream_piece){.part = (uint8_t)part, .act = s->meter->act, .kernel = kernel};
    return s->ops->event_record(s->be, l->n++, e);
}

int stream_to(struct exec *s, enum account part, struct err *e) { return piece_begin(s, (int)part, -1, e); }
int stream_kernel(struct exec *s, enum account part, int index, struct err *e)
{
    return piece_begin(s, (int)part, index, e);
}

int stream_step(struct exec *s, struct err *e)
{
    if (!s->meter->stream) return 0;
    s->meter->stream->n = 0;
    bool due = s->step <= FINE_FIRST || s->step % FINE_EVERY == 0;
    s->meter->stream->fine = (due && s->q.conf->run.kernel_times) || s->meter->profile || trace_on(s);
    return stream_to(s, ACC_OTHER, e);
}

/* The spans of a traced step. The stream was idle at the step's start, so the first event is at that time. */
static void spans_make(struct exec *s, uint64_t from)
{
    const struct stream *l = s->meter->stream;
    double at = (double)from, act_from = at;
    for (int i = 0; i < l->n; i++) {
        const struct stream_piece *p = &l->piece[i];
        double end = at + s->ops->event_elapsed(s->be, i, i + 1);
        bool waits = p->part == ACC_WAIT_UP || p->part == ACC_WAIT_DOWN || p->part == ACC_TRANSFER;
        if (p->kernel >= 0) trace_span(s, SPAN_KERNEL, (uint64_t)at, (uint64_t)end, p->kernel);
        else if (waits) trace_span(s, SPAN_WAIT, (uint64_t)at, (uint64_t)end, p->part);
        if (i == 0 || l->piece[i - 1].act != p->act) act_from = at;
        bool last = i + 1 == l->n || l->piece[i + 1].act != p->act;
        if (last && p->act >= 0) trace_span(s, SPAN_ACT, (uint64_t)act_from, (uint64_t)end, p->act);
        at = end;
    }
}

int stream_collect(struct exec *s, uint64_t from, uint64_t to, struct err *e)
{
    struct stream *l = s->meter->stream;
    double ns[ACC_COUNT + 1] = {0}, sum = 0;
    if (!l) return 0;
    /* the end of the last part: stream_open reserved two events beyond max */
    if (s->ops->event_record(s->be, l->n, e) || exec_drain(s, e)) return -1;
    for (int i = 0; i < l->n; i++) {
        double t = s->ops->event_elapsed(s->be, i, i + 1);
        ns[l->piece[i].part] += t;
        sum += t;
    }
    double both = ns[ACC_INPUT_GRAD] + ns[ACC_WEIGHT_GRAD];
    if (l->fine && both > 0) l->weight_share = ns[ACC_WEIGHT_GRAD] / both;
    ns[ACC_WEIGHT_GRAD] += ns[ACC_GRADS] * l->weight_share;
    ns[ACC_INPUT_GRAD] += ns[ACC_GRADS] * (1 - l->weight_share);
    /* before the stream began, and after the host saw its end */
    if ((double)(to - from) > sum) ns[ACC_OTHER] += (double)(to - from) - sum;
    for (int i = 0; i < ACC_COUNT; i++) s->meter->ns[i] = (uint64_t)ns[i];
    if (trace_on(s)) spans_make(s, from);
    return 0;
}

/* On an idle stream the events would measure the host's launch time, which in a step delays nothing. So spin holds the
 * stream while the host enqueues both events and the kernel: twice as long as the last enqueue took. */
int stream_timed(struct exec *s, struct be_kernel *k, const struct be_call *c, uint64_t *ns, struct err *e)
{
    struct stream *l = s->meter->stream;
    int at = l->max;
    uint64_t began = clock_ns();
    if (s->ops->spin(s->be, l->hold_ns, e) || s->ops->event_record(s->be, at, e) || s->ops->run(s->be, k, c, e) ||
        s->ops->event_record(s->be, at + 1, e))
        return -1;
    uint64_t wanted = 2 * (clock_ns() - began);
    l->hold_ns = wanted < HOLD_LEAST ? HOLD_LEAST : wanted > HOLD_MOST ? HOLD_MOST : wanted;
    if (exec_drain(s, e)) return -1;
    *ns = (uint64_t)s->ops->event_elapsed(s->be, at, at + 1);
    return 0;
}
