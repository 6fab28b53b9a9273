/* The trace: clocks of the ranks, gathering, and the events of Chrome's trace format. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cluster/log.h"
#include "report/trace.h"

/* The spans of a rank, on rank 0, with times by rank 0's clock. */
struct track { int n; struct span *v; };

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

/* What to add to the rank's clock to get rank 0's. Ranks of one host share the monotonic clock. Between hosts: from the
 * shortest of some round trips, of which half counts for the answer; the error is at most that half. */
static int64_t clock_offset(struct world *w, int rank)
{
    enum { TRIPS = 32 };
    int64_t offset = 0;
    uint64_t shortest = UINT64_MAX;
    if (w->here == w->size || rank == 0) return 0;
    for (int i = 0; i < TRIPS; i++) {
        uint64_t sent = clock_ns(), there = 0, nothing = 0;
        w->broadcast(w, 0, &nothing, sizeof nothing);         /* a request ... */
        if (w->rank == rank) there = clock_ns();
        w->broadcast(w, rank, &there, sizeof there);          /* ... and the answer */
        uint64_t trip = clock_ns() - sent;
        if (w->rank != 0 || trip >= shortest) continue;
        shortest = trip;
        offset = (int64_t)(sent + trip / 2) - (int64_t)there;
    }
    return offset;
}

static struct track spans_gather(const struct trace_request *q, int rank)
{
    struct world *w = q->world;
    struct track t = {0};
    int lost = 0;
    const struct span *mine = exec_spans(q->exec, &t.n, &lost);
    w->broadcast(w, rank, &t.n, sizeof t.n);
    w->broadcast(w, rank, &lost, sizeof lost);
    t.v = mem_alloc((size_t)(t.n + 1) * sizeof *t.v);
    if (w->rank == rank && t.n) memcpy(t.v, mine, (size_t)t.n * sizeof *t.v);
    if (t.n) w->broadcast(w, rank, t.v, (size_t)t.n * sizeof *t.v);
    int64_t offset = clock_offset(w, rank);
    for (int i = 0; i < t.n; i++) {
        t.v[i].from += (uint64_t)offset;
        t.v[i].to += (uint64_t)offset;
    }
    if (lost && w->rank == 0) log_line("trace: rank %d could not record %d spans", rank, lost);
    return t;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* rank: of the mesh, in this whole file */
static const struct plan *plan_of(const struct job *j, int rank, const struct span *s)
{
    return job_plans(j, rank)[s->plan];
}

static const struct act *act_of(const struct job *j, int rank, const struct span *s)
{
    return &plan_of(j, rank, s)->row[job_coord(j, rank).at[AXIS_PP]][s->index];
}

struct writer { const struct job *job; json_t *events; uint64_t zero; };
enum { TID_RANK = 1, TID_LINKS = 2 };                     /* of links: TID_LINKS + 2 * other rank, + 1 for sends */

static void event_add(struct writer *w, json_t *o) { json_array_append_new(w->events, o); }

static void name_add(struct writer *w, const char *what, int pid, int tid, const char *name)
{
    event_add(w, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", what, "pid", pid, "tid", tid, "args", "name",
                           name));
}

struct trace_slice { const char *name, *kind; uint64_t from, to; };

static double us(const struct writer *w, uint64_t t) { return (double)(t - w->zero) * 1e-3; }

/* An event on track `tid` of a rank. */
static json_t *slice(struct writer *w, int rank, int tid, struct trace_slice s)
{
    return json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f}", "ph", "X", "name", s.name, "cat", s.kind, "pid", rank, "tid",
                     tid, "ts", us(w, s.from), "dur", us(w, s.to) - us(w, s.from));
}

static const char *act_kind(const struct act *a) { return act_info[a->op].help; }

static void act_args(const struct plan *p, const struct act *a, uint64_t step, json_t *o)
{
    json_t *args = json_pack("{s:I,s:i}", "step", (json_int_t)step, "stage", a->stage);
    if (act_info[a->op].has_mb)
        json_object_update_new(args, json_pack("{s:i,s:i}", "micro_batch", a->mb, "samples", act_samples(p, a)));
    json_object_set_new(o, "args", args);
}

static void act_add(struct writer *w, int rank, const struct span *s)
{
    const struct plan *p = plan_of(w->job, rank, s);
    const struct act *a = act_of(w->job, rank, s);
    char name[32];
    json_t *o = slice(w, rank, TID_RANK, (struct trace_slice){act_text(p, a, name), act_kind(a), s->from, s->to});
    act_args(p, a, s->step, o);
    event_add(w, o);
}

static void kernel_add(struct writer *w, int rank, const struct span *s)
{
    static const char *const phase[PH_COUNT] = {"forward", "input gradient", "weight gradient"};
    const struct selection *sel = w->job->sel;
    const struct group *g = &sel->group[s->index % sel->n_groups];
    const char *name = sel->g->node[g->node[0]].name, *kind = phase[s->index / sel->n_groups];
    event_add(w, slice(w, rank, TID_RANK, (struct trace_slice){name, kind, s->from, s->to}));
}

static void wait_add(struct writer *w, int rank, const struct span *s)
{
    const char *name = s->index == ACC_TRANSFER  ? "transfer"
                       : s->index == ACC_WAIT_UP ? "waits for upstream"
                                                 : "waits for downstream";
    event_add(w, slice(w, rank, TID_RANK, (struct trace_slice){name, "wait", s->from, s->to}));
}

static void step_add(struct writer *w, int rank, const struct span *s)
{
    struct text t = {0};
    text_add(&t, "step %llu", (unsigned long long)s->step);
    event_add(w, slice(w, rank, TID_RANK, (struct trace_slice){t.s, "step", s->from, s->to}));
    text_free(&t);
}

static void own_add(struct writer *w, int rank, const struct track *t)
{
    static void (*const add[])(struct writer *, int, const struct span *) = {
        [SPAN_STEP] = step_add, [SPAN_ACT] = act_add,  [SPAN_KERNEL] = kernel_add,
        [SPAN_WAIT] = wait_add, [SPAN_MESSAGE] = NULL,
    };
    for (int i = 0; i < t->n; i++) if (add[t->v[i].kind]) add[t->v[i].kind](w, rank, &t->v[i]);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool is_send(const struct act *a) { return act_info[a->op].kind == KIND_SEND; }

/* Identifies a message at both of its ends. Pipelines number their channels alike. dp: of a message along AXIS_PP; a
 * channel along AXIS_DP has its own number. */
struct arrival { uint64_t step, at; int plan, dp, chan, mb; };

static struct arrival arrival_of(const struct job *j, int rank, const struct span *s)
{
    const struct act *a = act_of(j, rank, s);
    bool across = plan_of(j, rank, s)->chan[a->chan].axis == AXIS_DP;
    int dp = across ? -1 : job_coord(j, rank).at[AXIS_DP], mb = act_info[a->op].has_mb ? a->mb : 0;
    return (struct arrival){.step = s->step, .at = s->to, .plan = s->plan, .chan = a->chan, .dp = dp, .mb = mb};
}

static void flow_id(const struct arrival *x, char id[64])
{
    snprintf(id, 64, "%llu.%d.%d.%d.%d", (unsigned long long)x->step, x->plan, x->dp, x->chan, x->mb);
}

/* A message's slice begins when the link is free, because messages go one after another. Its arrow leads from the begin
 * of the send to the end of the receive. */
static void message_add(struct writer *w, int rank, const struct span *s, uint64_t *link_free)
{
    const struct plan *p = plan_of(w->job, rank, s);
    const struct act *a = act_of(w->job, rank, s);
    const struct arrival both = arrival_of(w->job, rank, s);
    const struct channel *c = &p->chan[a->chan];
    bool send = is_send(a);
    char name[32], id[64];
    int tid = TID_LINKS + 2 * mesh_rank(&p->pl->mesh, send ? c->to : c->from) + send;
    uint64_t from = s->from > link_free[tid] ? s->from : link_free[tid], to = s->to > from + 1000 ? s->to : from + 1000;
    link_free[tid] = to;
    json_t *o = slice(w, rank, tid, (struct trace_slice){act_text(p, a, name), act_kind(a), from, to});
    act_args(p, a, s->step, o);
    json_object_set_new(json_object_get(o, "args"), "bytes", json_integer((json_int_t)act_bytes(p, a)));
    event_add(w, o);
    if (act_info[a->op].kind == KIND_ALL) return;         /* a sum has no sender and receiver */
    flow_id(&both, id);
    o = json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:f}", "ph", send ? "s" : "f", "name", "message", "cat", "message", "id",
                  id, "pid", rank, "tid", tid, "ts", send ? us(w, from) : us(w, to) - 0.5);
    if (!send) json_object_set_new(o, "bp", json_string("e"));
    event_add(w, o);
}

static int by_post(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->index > y->index) - (x->index < y->index);
}

static void messages_add(struct writer *w, int rank, struct track *t)
{
    uint64_t *link_free = mem_alloc((size_t)(TID_LINKS + 2 * job_world(w->job) + 2) * sizeof *link_free);
    if (t->n) qsort(t->v, (size_t)t->n, sizeof *t->v, by_post);
    for (int i = 0; i < t->n; i++) if (t->v[i].kind == SPAN_MESSAGE) message_add(w, rank, &t->v[i], link_free);
    free(link_free);
}

/* ---- ends of sends --------------------------------------------------------------------------- */

static int by_message(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->plan != y->plan) return x->plan - y->plan;
    if (x->dp != y->dp) return x->dp - y->dp;
    return x->chan != y->chan ? x->chan - y->chan : x->mb - y->mb;
}

static bool is_message(const struct job *j, int rank, const struct span *s, bool send)
{
    return s->kind == SPAN_MESSAGE && is_send(act_of(j, rank, s)) == send;
}

/* A rank notices the end of a send only at its next check, maybe long after the message arrived. So a send ends, at the
 * latest, with its receive. */
static void sends_end(const struct job *j, struct track *track)
{
    int n = 0;
    for (int r = 0; r < job_world(j); r++) n += track[r].n;
    struct arrival *all = mem_alloc((size_t)(n + 1) * sizeof *all);
    n = 0;
    for (int r = 0; r < job_world(j); r++)
        for (int i = 0; i < track[r].n; i++)
            if (is_message(j, r, &track[r].v[i], false)) all[n++] = arrival_of(j, r, &track[r].v[i]);
    qsort(all, (size_t)n, sizeof *all, by_message);
    for (int r = 0; r < job_world(j); r++)
        for (int i = 0; i < track[r].n; i++) {
            struct span *s = &track[r].v[i];
            if (!is_message(j, r, s, true)) continue;
            struct arrival key = arrival_of(j, r, s);
            const struct arrival *there = bsearch(&key, all, (size_t)n, sizeof *all, by_message);
            if (there && there->at < s->to) s->to = there->at > s->from ? there->at : s->from;
        }
    free(all);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void rank_add(const struct job *j, int rank, struct text *t)
{
    if (j->mesh.size[AXIS_DP] > 1) text_add(t, "%s %d, ", axis_word[AXIS_DP], job_coord(j, rank).at[AXIS_DP]);
    text_add(t, "stage %d", job_coord(j, rank).at[AXIS_PP]);
}

static void name_table_add(struct writer *w, int rank)
{
    const struct job *j = w->job;
    const struct selection *s = j->sel;
    const int *first = &j->first_group[job_coord(j, rank).at[AXIS_PP]];
    struct text t = {0};
    rank_add(j, rank, &t);
    if (first[1] > first[0])
        text_add(&t, ": %s .. %s", s->g->node[s->group[first[0]].node[0]].name,
                 s->g->node[s->group[first[1] - 1].node[0]].name);
    name_add(w, "process_name", rank, 0, t.s);
    name_add(w, "thread_name", rank, TID_RANK, "compute");
    text_free(&t);
    for (int other = 0; other < job_world(j); other++)
        for (int send = 0; send < 2 && other != rank; send++) {
            t = (struct text){0};
            text_add(&t, "%s ", send ? "sends to" : "receives from");
            rank_add(j, other, &t);
            name_add(w, "thread_name", rank, TID_LINKS + 2 * other + send, t.s);
            text_free(&t);
        }
}

static int file_write(const struct job *j, struct track *track, const struct out_place *at, struct err *e)
{
    struct writer w = {.job = j, .events = json_array(), .zero = UINT64_MAX};
    sends_end(j, track);
    for (int r = 0; r < job_world(j); r++)
        for (int i = 0; i < track[r].n; i++) if (track[r].v[i].from < w.zero) w.zero = track[r].v[i].from;
    for (int r = 0; r < job_world(j); r++) {
        name_table_add(&w, r);
        own_add(&w, r, &track[r]);
        messages_add(&w, r, &track[r]);
    }
    json_t *all = json_pack("{s:s,s:o}", "displayTimeUnit", "ms", "traceEvents", w.events);
    char *s = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15));
    struct text t = {0};
    if (s) text_add_bytes(&t, s, strlen(s));
    int bad = s ? out_file(at, &t, false, e) : err_set(e, E_INTERNAL, "%s: out of memory", at->path);
    json_decref(all);
    text_free(&t);
    free(s);
    return bad;
}

int trace_write(const struct trace_request *q, struct err *e)
{
    const struct job *j = q->job;
    const char *file = j->conf->run.trace;
    if (!file) return 0;
    struct track *t = mem_alloc((size_t)job_world(j) * sizeof *t);
    int n = 0, bad = 0;
    for (int r = 0; r < job_world(j); r++) {
        t[r] = spans_gather(q, r);
        n += t[r].n;
    }
    if (q->world->rank == 0 && !n) log_line("trace: no step was traced, %s is not written", file);
    if (q->world->rank == 0 && n) bad = file_write(j, t, q->at, e);
    for (int r = 0; r < job_world(j); r++) free(t[r].v);
    free(t);
    return bad;
}
