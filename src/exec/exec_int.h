/* The inside of struct exec, for the files of exec only. The way of a step: run.c; for each action wait.c, then load.c,
 * record.c and call.c, or post.c. */
#ifndef EXEC_EXEC_INT_H
#define EXEC_EXEC_INT_H
#include "exec/exec.h"

/* A post that may not be complete. cls < 0: a gradient or parameter of a tied weight, not a slot. */
struct pending {
    struct tp_req req;
    bool send;
    int peer;                                            /* the transport's rank at the other end */
    int16_t from;                                        /* the sending rank, among those of all pipelines */
    int16_t cls;
    uint16_t slot;
    int bucket;                                          /* of gradients between pipelines; 0: another message */
    const struct act_info *info;                         /* its action */
    bool done;                                           /* seen complete while tracing; the handle is freed */
    bool damaged;                                        /* counted in struct exec */
    int act; uint64_t posted;                            /* for the trace */
    struct tp_req *lent;                                 /* of a borrowing receive: where its handle is kept; or NULL */
    size_t bytes;
};

/* A plan of the set, made executable on this rank. */
struct bound {
    const struct plan *p;
    int index;
    /* of each micro-batch: index of its size; there are only a few sizes */
    int *size_of;
    struct be_kernel **kernel;                           /* [size][phase][group] */
    int n_sizes;
    int n_micro, *micro_n;                               /* of all pipelines, in the order of the batch */
    /* [class][micro-batch]: its slot, set by the action that writes the class */
    int *slot;
    const struct act **load; int n_loads;                /* load actions, in the order of the row */
    /* [action], and one for what follows the row: recorded calls, NULL: none; NULL without replay */
    struct be_graph **graph;
    struct tp_req *lent;                                 /* [channel]: gradients that another pipeline lends */
};

struct region { char *at; size_t bytes; };

/* What all ranks know about an attempt at a training step before the update. UPDATE: nothing is wrong, so far or
 * finally; CORRUPT: its numbers differ from the kept ones. */
enum outcome { UPDATE, NOT_FINITE, CORRUPTED, VERIFIED, NOT_REPRODUCED };
/* tensors that arrived damaged at this rank in this attempt; ranks of the first one */
struct damaged { int n, from, to; };

/* orders with known samples: the running one and those that may be prefetched */
enum { AHEAD = 3 };
/* next_load, next_early: next load to request; next load to put on the device */
struct ahead { uint64_t step, position; int bound, next_load, next_early; int64_t *id; };
/* loads on the device before their action */
enum { EARLY = 2 };
/* of the graph inputs that the action loads, in the stage's order */
struct early { int ticket[MAX_INPUTS]; };

struct exec {
    struct exec_request q;
    const struct graph *g;
    int rank;                                            /* in the plan */
    const struct be_ops *ops;
    struct be *be;
    struct tp *tp;
    struct region param, grad, state, packed, slots, tmp, work;
    struct region link;                                  /* memory for messages of link_measure */
    char *window;                                          /* memory of param and grad, if other ranks read them */
    size_t read_bytes;                                   /* most bytes that a training step reads of other ranks */
    bool has_read;                                       /* such a step ran */
    char nothing[16 << 10];                              /* zeros: the gradients of no micro-batches */
    size_t load_bytes;                                   /* of the backend, for loads on their way */
    size_t feed_bytes;                                   /* of all feeds, on the host */
    struct be_block *block;                              /* device */
    struct be_block given;                               /* the part of it that the configuration sets */
    int64_t *sample;                                     /* device: ids of the step */
    int max_batch, optimizer;
    const int *own; int n_own;                           /* stages of the plan on this rank, ascending */
    struct bound *bound; int n_bound;
    struct pending *pending; int n_pending, max_pending;
    /* threads that read and write files; weights, and optimizer state, that lie in one; NULL: none on this rank */
    struct disk *disk; struct fetcher *fetch; struct offload *offload;
    struct feed *feed[2];                                /* DS_TRAIN, DS_TEST */
    int value_at[2][MAX_INPUTS];                         /* of each graph input: its index among the feed's values */
    struct early early[EARLY]; int n_early;              /* oldest first */
    struct ahead ahead[AHEAD]; int n_ahead, n_requested[2];
    int feed_depth;
    /* The numbers that ranks agree on (finite.c): squared norm of each parameter's gradient, the two sums of the loss,
     * the damaged tensors. norm_before: of an earlier attempt, if kept. norm_at: the squared norms in the backend's
     * memory. */
    double *norm, *norm_before, *norm_at;
    bool *has_norm;                                      /* of each parameter: norm_at is of this step */
    bool verifies, kept;                                 /* the step runs twice; norm_before is of this step */
    enum outcome outcome;
    struct damaged damaged;
    struct be_weight *weight; int n_weights;             /* the weights that an optimizer step updates */
    double *sums; size_t n_sums;                         /* memory of all be_weight.sums */
    /* copy: other ranks' weights that have averages here. averaged: are averages in the weights' place now? */
    struct be_weight *copy; int n_copies;
    bool averaged, records;                              /* records: calls are recorded, so nothing moves */
    bool *packed_by_update;                              /* [group]: the update also makes its packed weights */
    struct scores scores;
    double *scores_host;                                 /* of a step: one tensor of scores, laid out as in its slots */
    /* of a step's running statistics; saved: [group][micro-batch] */
    struct be_running *running; const void **saved;
    double grad_norm;
    struct meter *meter;                                 /* NULL before exec_bind */
    uint64_t resident_before, library_bytes;
    uint64_t step; int plan;                             /* that are running; -1: no step ran yet */
    struct exec_past past;                               /* before the running step */
    struct exec_beat *beat, unwatched;                   /* of the request, or else &unwatched */
    const struct order *order; struct report *report;    /* of the running step */
};

/* Ranks are the plan's, of one pipeline. Messages to the user number a rank in the whole mesh. The transport may number
 * ranks differently. */
static inline struct mesh_coord exec_coord(const struct exec *s)
{
    return (struct mesh_coord){{[AXIS_PP] = s->rank, [AXIS_DP] = s->q.plan[0]->req.dp}};
}
static inline int all_rank(const struct exec *s) { return mesh_rank(&s->q.pl->mesh, exec_coord(s)); }
static inline int tp_rank_of(const struct exec *s, struct mesh_coord c)
{
    int all = mesh_rank(&s->q.pl->mesh, c);
    return s->q.tp_rank ? s->q.tp_rank[all] : all;
}
/* This rank's neighbour at another coordinate of an axis, in the transport's numbers. */
static inline int tp_rank_along(const struct exec *s, enum axis a, int at)
{
    struct mesh_coord c = exec_coord(s);
    c.at[a] = at;
    return tp_rank_of(s, c);
}

/* A row of the registry on this rank, NULL: it is not here; and the gradient of one use of a parameter. */
static inline void *state_at(const struct exec *s, const struct state_row *r)
{
    size_t off = r->off[s->rank];
    return off == STATE_NOWHERE ? NULL : (r->region == IN_PARAM ? s->param.at : s->state.at) + off;
}
static inline float *use_at(const struct exec *s, int param, int use)
{
    size_t off = placement_use(s->q.pl, s->rank, param, use);
    return off == STATE_NOWHERE ? NULL : (float *)(s->grad.at + off);
}

/* The same accumulator, `level` levels higher. */
static inline void *level_at(const struct exec *s, void *grad, int level)
{
    return grad ? (char *)grad + (size_t)level * s->q.pl->level_bytes[s->rank] : NULL;
}

/* Address of a place. SLOT: the slot that b->slot has for micro-batch mb. */
static inline void *place_at(const struct exec *s, const struct bound *b, const struct place *p, int mb)
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
    case SP_PACKED: return s->packed.at + p->off;
    case SP_NONE: break;
    }
    return NULL;
}

/* A value kept to the end, of a micro-batch of any pipeline. */
static inline void *kept_at(const struct exec *s, const struct bound *b, const struct place *p, int dp, int mb)
{
    const struct slot_class *c = &b->p->cls[p->cls];
    if (dp == b->p->req.dp) return place_at(s, b, p, mb);
    return s->slots.at + c->copy[dp] + p->off * (size_t)b->p->part[dp].n_mb + (size_t)mb * p->bytes;
}

bool output_scores(const struct exec *s, const struct output *o);        /* outputs.c: do scores lie in it? */
/* Adds up the scores of the step that has run, of the outputs on this rank. */
int exec_scores(struct exec *s, const struct bound *b, const struct order *o, struct report *r, struct err *e);
uint64_t resident_peak(void);                                                                       /* bind.c */

static inline int act_index(const struct exec *s, const struct bound *b, const struct act *a)
{
    return (int)(a - b->p->row[s->rank]);
}
/* The action of its i-th micro-batch alone. */
static inline struct act act_one(const struct act *a, int i)
{
    struct act one = *a;
    one.n_mb = 1;
    one.mb = (uint16_t)(a->mb + i);
    if (i) one.flags &= (uint8_t)~ACT_FIRST;
    return one;
}
/* For the threads that watch: the action that begins; progress was made; the rank that is waited for (exec.h). */
static inline void beat_act(struct exec *s, const struct bound *b, const struct act *a)
{
    uint64_t where = exec_where(a->op, a->stage, a->mb, act_info[a->op].has_mb ? a->n_mb : 0);
    atomic_store_explicit(&s->beat->where, where, memory_order_relaxed);
    exec_beat_count(s->beat);
}
static inline void beat_moves(struct exec *s) { exec_beat_count(s->beat); }
static inline void beat_waits(struct exec *s, int whom) { exec_beat_wait(s->beat, whom); }
typedef int act_fn(struct exec *s, struct bound *b, const struct act *a, struct err *e);

static inline int exec_aborted(const struct exec *s, struct err *e)
{
    int code = s->q.abort ? atomic_load_explicit(s->q.abort, memory_order_relaxed) : 0;
    return code ? err_set(e, code, "stopped") : 0;
}

/* Drives the transport, and receives the job's other messages. */
static inline int exec_progress(struct exec *s, struct err *e)
{
    const struct exec_control *c = &s->q.control;
    return s->tp->ops->progress(s->tp, e) || (c->listen && c->listen(c->ctx, e)) ? -1 : 0;
}
static inline int exec_reduce(struct exec *s, double *x, int n, struct err *e)
{
    const struct exec_control *c = &s->q.control;
    return c->reduce ? c->reduce(c->ctx, x, n, e) : s->tp->ops->reduce(s->tp, x, n, e);
}

/* wait.c. Waits for the posts that touch a slot: receives before it is read, sends before it is written. */
int posts_wait(struct exec *s, int cls, int slot, bool sends, struct err *e);
enum { WAIT_ALL = -1 };                                   /* cls: all posts */
/* Waits for posts without slots that must be over before the action, according to its table. */
int messages_wait(struct exec *s, const struct bound *b, const struct act *a, struct err *e);
int posts_settle(struct exec *s, struct err *e);         /* all posts, at the end of a step */
void posts_poll(struct exec *s);                         /* of a traced step: which posts are done? */
void operands_place(struct bound *b, const struct act *a);/* sets the slots of the action's operands */
int operands_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e);
/* until no reader of state remains; then a step may change it */
int state_wait(struct exec *s, struct err *e);
/* until the stream has done everything, while it checks aborts and drives the transport */
int exec_drain(struct exec *s, struct err *e);

act_fn exec_post, exec_load;                                                                /* post.c, load.c */

/* The program of an action, call by call, for each of its micro-batches, ascending. */
act_fn prog_calls;

/* All calls of an action of the row; with the row's length as index, the calls after the row. Replays them as recorded,
 * or makes them one by one. */
int calls_replay(struct exec *s, struct bound *b, int index, struct err *e);                   /* record.c */
int exec_warm(struct exec *s, struct bound *b, struct err *e);
int exec_record(struct exec *s, struct bound *b, struct err *e);
/* load.c: sends what the feed has ready while the device computes; without a stream it does nothing */
int exec_load_early(struct exec *s, struct err *e);
void exec_loads_list(struct exec *s, struct bound *b);
int exec_feeds_open(struct exec *s, struct err *e);
void exec_feeds_close(struct exec *s);
int exec_ahead_ready(struct exec *s, const struct order *o, const int64_t *id, struct err *e);
void exec_ahead_done(struct exec *s);
int exec_ahead_again(struct exec *s, struct err *e);     /* repeats the loads of all known orders */

enum { LINK_LARGE = 8 << 20, LINK_TRIPS = 16 };           /* the largest messages that measure a link; their number */
int exec_weights_list(struct exec *s, struct err *e);
int exec_state_init(struct exec *s, struct err *e);                                             /* state.c */
bool exec_norms_it(const struct exec *s, int param);     /* does this rank compute the norm of its gradient? */
int exec_norm(struct exec *s, int param, struct err *e); /* if so, enqueues it */
bool exec_norm_leaves(const struct exec *s, int param);  /* does its gradient leave the device before the update? */
act_fn exec_sum;                                         /* the additions of ACT_A and ACT_G */
act_fn exec_norms;                                       /* all norms that the step does not have yet */
/* finite.c: with all ranks, after exec_norms; fills s->norm, s->outcome and the report's scores */
int exec_agree(struct exec *s, struct bound *b, struct err *e);
int exec_agreed_numbers(const struct exec *s);           /* length of s->norm */
void exec_agreed_store(struct exec *s);                   /* for the next attempt */
int exec_nonfinite(const struct exec *s);                /* which of them is not finite: enum nonfinite */
int exec_damaged_report(struct exec *s, struct err *e);    /* reports damaged tensors; 80 if there were some before */
int exec_unsure(struct exec *s, struct err *e);          /* reports the numbers that differ from the kept ones: 80 */
/* must packed weights be made after a step, because the update does not make them? Not of frozen weights */
bool exec_derives(const struct exec *s, int group);
int exec_pack(struct exec *s, bool after_step, struct err *e);
int exec_optimize(struct exec *s, struct bound *b, struct err *e);
int exec_averages_copies(struct exec *s, struct err *e); /* of weights that have just arrived from their owners */

#endif
