/* The inside of struct stage: shared by bind.c (set-up), run.c (the interpreter), load.c (data), params.c (persistent
 * tensors). Nobody else. */
#ifndef EXEC_STAGE_INT_H
#define EXEC_STAGE_INT_H
#include "exec/stage.h"
#include "base/clock.h"

/* One post that is not known to be complete. cls < 0: a gradient or parameter of a tied weight, not a slot. */
struct pending {
    struct tp_req req;
    bool send;
    int16_t cls;
    uint16_t slot;
    const struct act_info *info;                         /* its action */
    bool done;                                           /* seen to be complete while tracing; the handle is gone */
    int act; uint64_t posted;                            /* for the trace */
};

/* A kernel call of a program, as the backend gets it: one call of n samples, or one a micro-batch where only those
 * leave the right bits. */
struct calls { struct be_kernel *kernel, *rest; int n; };  /* rest: for the last one, if it has fewer samples */

/* A load action of this rank's row. What several stages load of a micro-batch is read once: it is taken from the feed
 * for the first such action, and given back after the last. */
struct load { const struct act *act; bool first, last; };

/* A plan of the set, made executable on this rank. */
struct bound {
    const struct plan *p;
    int index;
    /* of each micro-batch: which of the (at most a few) sizes it has */
    int *size_of;
    struct calls *calls;                                 /* [size][phase][group] */
    int n_sizes;
    /* [class][micro-batch]: slot that holds it, written by the action that writes the class */
    int *slot;
    struct load *load; int n_loads;                      /* in the order of the row */
    int held;                                            /* most micro-batches that are not given back after a load */
    /* [action], and one for what comes after: recorded calls, NULL: none; NULL without replay */
    struct be_graph **graph;
};

struct region { char *at; size_t bytes; };

/* orders whose samples are known: the running one and what may be prefetched */
enum { AHEAD = 3 };
/* next_load, next_early: loads that were requested, loads that are on the device; value: of each micro-batch that was
 * taken from the feed */
struct ahead { uint64_t step, position; int bound, next_load, next_early; int64_t *id; void *const **value; };
/* loads on the device before their action comes */
enum { EARLY = 2 };
/* of the graph's inputs that the action loads, in the stage's order */
struct early { int ticket[MAX_INPUTS]; };

struct stage {
    struct stage_request q;
    const struct graph *g;
    int rank;                                            /* in the plan */
    const struct be_ops *ops;
    struct be *be;
    struct tp *tp;
    struct region param, grad, state, derived, slots, tmp, work;
    struct region link;                                  /* what link_measure sends */
    size_t load_bytes;                                   /* the backend's, for loads on their way */
    size_t feed_bytes;                                   /* of all feeds, on the host */
    struct be_block *block;                              /* device */
    struct be_block given;                               /* what of it the configuration says */
    int64_t *sample;                                     /* device: ids of the step */
    int max_batch, optimizer, n_state;
    struct bound *bound; int n_bound;
    struct stage_param **param_at;                       /* [graph param]: how this rank holds it, NULL: not here */
    int *param_stage;                                    /* [graph param]: the stage of param_at */
    struct pending *pending; int n_pending, max_pending;
    struct feed *feed[2];                                /* DS_TRAIN, DS_TEST */
    int value_at[2][MAX_INPUTS];                         /* of each graph input among the feed's values */
    struct early early[EARLY]; int n_early;              /* oldest first */
    struct ahead ahead[AHEAD]; int n_ahead, n_requested[2];
    int feed_depth;
    /* squared norm of each parameter's gradient; and in the backend's memory */
    double *norm, *norm_at;
    bool recording;                                      /* calls are recorded, not run */
    struct be_weight *weight; int n_weights;             /* what an optimizer step updates */
    bool *derived_by_update;                             /* [group]: its derived weights, too */
    struct scores scores;
    double *scores_host;                                 /* of a step, one tensor of them as it lies in its slots */
    struct be_stats *stats; const void **extra;          /* of a step's running statistics; [group][micro-batch] */
    double grad_norm;
    /* account: exactly one part runs at any time */
    enum account part;
    uint64_t since, ns[ACC_COUNT];
    uint64_t last_end, resident_before, library_bytes;
    struct lane *lane;                                   /* NULL: the backend runs at once */
    struct trace *trace;                                 /* NULL: nothing is traced */
    uint64_t step; int plan;                             /* that are running */
    struct profile *profile;                             /* NULL: kernels are not noted one by one */
    struct profile *profiled;                            /* what was noted, or the memory for it */
};

/* From now on time belongs to `part`. Returns the part that ran before. */
static inline enum account account_to(struct stage *s, enum account part)
{
    uint64_t now = clock_ns();
    enum account old = s->part;
    s->ns[old] += now - s->since;
    s->since = now;
    s->part = part;
    return old;
}

/* Posts go to the transport's ranks; everything else here speaks of the plan's. */
static inline int tp_rank_of(const struct stage *s, int rank) { return s->q.tp_rank ? s->q.tp_rank[rank] : rank; }

/* Addresses. slot_of: slot of each class for the running action's micro-batch. */
static inline void *place_at(const struct stage *s, const struct bound *b, const struct place *p, int mb)
{
    switch ((enum space)p->space) {
    case SP_SLOT: {
        const struct slot_class *c = &b->p->cls[p->cls];
        return s->slots.at + c->base + p->off * (size_t)c->n_slots +
               (size_t)b->slot[p->cls * b->p->n_mb + mb] * p->bytes;
    }
    case SP_TMP: return s->tmp.at + p->off;
    case SP_PARAM: return s->param.at + p->off;
    case SP_GRAD: return s->grad.at + p->off;
    case SP_DERIVED: return s->derived.at + p->off;
    case SP_WORK: return s->work.at + p->off;
    case SP_NONE: break;
    }
    return NULL;
}

bool output_scores(const struct stage *s, const struct output *o);        /* outputs.c: do scores lie in it? */
/* Adds up the scores of the step that has run, of the outputs on this rank. */
int stage_scores(struct stage *s, const struct bound *b, const struct order *o, struct report *r, struct err *e);
uint64_t resident_peak(void);                                                                       /* bind.c */
int stage_aborted(const struct stage *s, struct err *e);                                          /* run.c */
void wait_politely(unsigned tries);
int stage_warm(struct stage *s, struct bound *b, struct err *e);
int stage_record(struct stage *s, struct bound *b, struct err *e);
int stage_load(struct stage *s, struct bound *b, const struct act *a, struct err *e);           /* load.c */
/* sends what the feed has ready, while the device computes; NULL lane: nothing */
int stage_load_early(struct stage *s, struct err *e);
void stage_loads_list(struct stage *s, struct bound *b);
int stage_feeds_open(struct stage *s, struct err *e);
void stage_feeds_close(struct stage *s);
int stage_ahead_ready(struct stage *s, const struct order *o, const int64_t *id, struct err *e);
void stage_ahead_done(struct stage *s);

/* Time on an asynchronous lane (lane.c); without one all of them do nothing. The account of a step is then made of
 * marks on the lane. */
int lane_open(struct stage *s, struct err *e);
void lane_close(struct stage *s);
int lane_step(struct stage *s, struct err *e);            /* a step begins */
/* from here on the lane's time belongs to part; of ACC_GRADS the shares are known from an earlier step */
int lane_to(struct stage *s, enum account part, struct err *e);
/* as lane_to, in a fine step, for one kernel (index as in spans) */
int lane_kernel(struct stage *s, enum account part, int index, struct err *e);
void lane_act(struct stage *s, int act);                  /* what follows belongs to this action of the row */
bool lane_fine(const struct stage *s);                    /* does this step mark every change, also within an action? */
/* waits until all is done, hearing aborts and the transport */
int lane_drain(struct stage *s, struct err *e);
/* after that: s->ns from the marks, spans of a traced step; from, to: clock_ns of the step */
int lane_collect(struct stage *s, uint64_t from, uint64_t to, struct err *e);
/* runs one kernel alone and times it */
int lane_timed(struct stage *s, struct be_kernel *k, const struct be_call *c, uint64_t *ns, struct err *e);

void trace_open(struct stage *s);                                                                /* trace.c */
void trace_close(struct stage *s);
void trace_step(struct stage *s, const struct order *o);  /* is this one traced? */
bool trace_on(const struct stage *s);
void trace_span(struct stage *s, enum span_kind kind, uint64_t from, uint64_t to, int plan, int index, uint64_t step);

enum { LINK_LARGE = 8 << 20, LINK_TRIPS = 16 };           /* the largest messages that measure a link; how many */
/* of a kernel: its time, what its thread had of a core, pages from a disk */
struct noted { uint64_t ns, core_ns, faults; };
void noted_begin(struct noted *k);                                                               /* profile.c */
void noted_end(struct noted *k);
void profile_note(struct profile *p, int plan, enum phase ph, int group, const struct noted *k);
void profile_note_load(struct profile *p, int plan, uint64_t ns);
void profile_free(struct profile *p);

void stage_weights_list(struct stage *s);
int stage_params_init(struct stage *s, struct err *e);                                            /* params.c */
int stage_norm(struct stage *s, struct err *e);
/* is there anything to derive after a step that the step itself did not? */
bool stage_derives(const struct stage *s, int group);
int stage_derive(struct stage *s, bool after_step, struct err *e);
int stage_optimize(struct stage *s, struct bound *b, struct err *e);

#endif
