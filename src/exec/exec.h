/* One rank's executor: its rows of a plan set, a backend, a transport, a data feed. Opaque.
 *
 * Who may use it: train (and tests). Thread: the one that opened it. No globals, so several ranks can live in one
 * process (transport local). exec_step runs one row and allocates nothing.
 *
 * This folder: binding a plan to memory and kernels (bind.c), running a row (run.c), posts and waits (post.c, wait.c),
 * sums and updates (state.c), what is agreed on after a step (finite.c), measuring (meter.c, profile.c, trace.c). See
 * docs/design/exec.md. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H
#include <stdatomic.h>
#include "backend/be.h"
#include "transport/tp.h"
#include "data/ds.h"
#include "plan/plan.h"

enum step_kind { STEP_TRAIN, STEP_EVAL, STEP_KINDS };    /* other kinds of orders are the caller's */
/* what rank 0 decides for a step; followed by n sample ids when sent */
enum { ORDER_AHEAD = 2 };                                /* steps that are ordered before it is known of all others */
struct order {
    uint32_t kind, plan;                                 /* TRAIN, EVAL: plan's index in the set */
    uint64_t step;                                       /* 1-based; micro-steps of an evaluation count on */
    uint64_t position;                                   /* of the first sample in the order of samples (feed_batch) */
    uint64_t n_skipped;                                  /* steps before that updated nothing, as far as is known */
    double learning_rate;                                /* if it stays so */
    double after_skips[ORDER_AHEAD];                     /* [k]: if k + 1 more updated nothing */
    double weight;                                       /* of all its samples (ds_weight): means divide by it */
    int32_t n;                                           /* samples */
    /* of the caller's kinds, not read here (enum order_kind) */
    int32_t code, row, what; uint32_t serial;
};
/* skipped: how many of all steps before it updated nothing */
static inline double order_rate(const struct order *o, uint64_t skipped)
{
    return skipped > o->n_skipped ? o->after_skips[skipped - o->n_skipped - 1] : o->learning_rate;
}
/* Of one score (graph_scores) over some samples. */
struct score_sum { double numerator, denominator; };
/* What is not finite: the loss, or the gradient of parameter NONFINITE_GRADIENT + i. */
enum nonfinite { NONFINITE_LOSS = 1, NONFINITE_GRADIENT };
/* what a step yields on one rank; open, fixed size, sent to rank 0 */
struct report {
    uint64_t step; int32_t rank, code;                   /* rank: of all; code: 0, or an exit code with text */
    /* Of the scores that arise on this rank: sums over samples, added in sample order; 0 of the others. */
    struct score_sum score[MAX_SCORES];
    int64_t samples;                                     /* on the rank that has the plan's first output; 0 elsewhere */
    double grad_norm;                                    /* -1: not computed */
    /* of a training step, alike on all ranks. Not 0: enum nonfinite, both times that it ran; nothing was updated */
    int32_t nonfinite;
    /* alike on all ranks, too: tensors that came damaged from rank to rank of the plan, for which the step ran again;
     * from, to: where exactly one did, otherwise -1 */
    int32_t damaged, damaged_from, damaged_to;
    uint64_t ns[ACC_COUNT], total_ns;
    /* gradients that were added to others, and how long that took; on devices unknown, 0 */
    uint64_t sum_bytes, sum_ns;
    /* what was copied out of other replicas' memory, and how long that took */
    uint64_t read_bytes, read_ns;
    /* since the step before: waiting for the next order, reports, evaluation between */
    uint64_t idle_ns;
    /* allocated; and what the process grew by since exec_open, as the system saw it */
    uint64_t allocated_bytes, resident_bytes;
    /* of the latter: while the backend prepared its kernels, so mostly its libraries' */
    uint64_t library_bytes;
    uint64_t feed_bytes;                                 /* exec_feed_bytes, and what the data sets keep */
    uint64_t skipped;                                    /* damaged samples that it skipped so far (ds_damage) */
    char text[600];                                      /* of code; without one why the first sample was skipped */
};

/* What a rank is at, for whoever watches over it: written by the rank's thread alone, read by others at any moment. The
 * executor writes count, where and wait; the rest is its caller's. */
struct exec_beat {
    _Atomic uint64_t count;                              /* grows with every action and kernel */
    _Atomic uint64_t looks;                              /* grows while it waits and looks for what it waits for */
    _Atomic uint64_t step, where;                        /* where: the running action (exec_where); 0: none */
    _Atomic uint64_t slowest_ns;                         /* of all steps so far */
    atomic_int wait;                                     /* a rank, or one of the following */
    atomic_int state;                                    /* set of enum beat_state */
};
enum { EXEC_WAITS_NOT = -1, EXEC_WAITS_DEVICE = -2 };
/* In a step, or waiting for others to end theirs; it is one of an evaluation; one of its kind has been done before. At
 * something else that may take long, such as reading a checkpoint: the others wait rightly. */
enum beat_state { BEAT_IN = 1, BEAT_EVALUATES = 2, BEAT_WARM = 4, BEAT_ELSEWHERE = 8 };
/* n: micro-batches of the action, 0 where it is none of a micro-batch */
static inline uint64_t exec_where(int op, int stage, int mb, int n)
{
    return (uint64_t)(op + 1) | (uint64_t)stage << 8 | (uint64_t)mb << 24 | (uint64_t)n << 44;
}
static inline int exec_where_op(uint64_t w) { return (int)(w & 0xff) - 1; }
static inline int exec_where_stage(uint64_t w) { return (int)(w >> 8 & 0xffff); }
static inline int exec_where_mb(uint64_t w) { return (int)(w >> 24 & 0xfffff); }
static inline int exec_where_n(uint64_t w) { return (int)(w >> 44); }
static inline void exec_beat_count(struct exec_beat *b)
{
    uint64_t n = atomic_load_explicit(&b->count, memory_order_relaxed);
    atomic_store_explicit(&b->count, n + 1, memory_order_relaxed);
}
static inline void exec_beat_look(struct exec_beat *b)
{
    uint64_t n = atomic_load_explicit(&b->looks, memory_order_relaxed);
    atomic_store_explicit(&b->looks, n + 1, memory_order_relaxed);
}
static inline void exec_beat_wait(struct exec_beat *b, int whom)
{
    atomic_store_explicit(&b->wait, whom, memory_order_relaxed);
}

/* Somebody who reads state, for a checkpoint. on: no step changes it meanwhile; moved: counts what he has read. */
struct exec_hold { atomic_bool on; _Atomic uint64_t moved; };

/* What a job adds to the transport. listen: hears what ranks say to each other beside tensors, wherever the executor
 * drives its transfers. reduce: as tp_ops.reduce, but it ends when the job fails meanwhile. All NULL: nothing, and the
 * transport's own. */
struct exec_control {
    int (*listen)(void *ctx, struct err *e);
    int (*reduce)(void *ctx, double *x, int n, struct err *e);
    void *ctx;
};
struct exec_request {
    const struct conf *conf;
    const struct selection *sel;
    const struct placement *pl;
    struct plan *const *plan; int n_plans;               /* the plan set */
    const struct be_ops *be;
    int unit;                                            /* which device of this host; 0 where there is one */
    struct tp *tp; struct exec_control control;
    /* of the plan: whose row runs here; and the transport's rank of each of the plan's ranks, those of the first
     * replica, then of the next; NULL: in this order. The plans say which replica runs here (plan_request.replica). */
    int rank; const int *tp_rank;
    struct ds *train, *test;                             /* opened on this rank; may be NULL where no plan loads */
    const cpu_set_t *reader_cores;                       /* as in struct feed_want */
    bool links;                                          /* for link_measure: takes its memory, connects neighbours */
    bool graphs;                                         /* record actions and replay them, where the backend can */
    /* not 0: leave the step as soon as possible; its value is the exit code */
    atomic_int *abort;
    const struct exec_hold *hold;                        /* NULL: nobody reads state while steps run */
    uint64_t hold_ns;                                    /* how long he may stand still; 0: DEADLINE_WRITER */
    struct exec_beat *beat;                              /* NULL: nobody watches */
};
struct exec;
/* Opens the device and knows every byte; nothing is allocated there. 69/78. */
int exec_open(const struct exec_request *r, struct exec **out, struct err *e);
/* After exec_open: what the device has free; SIZE_MAX where nobody can say. exec_bytes is what the plan set will take
 * of it. 69 */
int exec_room(struct exec *s, size_t *room, struct err *e);
/* Once, after exec_open: all memory, kernels, channels; parameters are initialised from the seed (tied copies too).
 * 69/70. */
int exec_bind(struct exec *s, struct err *e);
/* Tells a device transport which stream computes and which links it will serve; with other transports nothing.
 * Collective, after all ranks have bound their stage, before the first step. 69 */
int exec_connect(struct exec *s, struct err *e);
/* Bytes on the host of a rank's buffers for samples that are read ahead, under such a plan set. Pure. */
size_t exec_feed_bytes(const struct conf *c, struct plan *const *plan, int n_plans, int rank);
/* Names the sample ids of a coming order, so that the feed can read ahead. Call in order, at most one step ahead of
 * exec_step. */
int exec_prefetch(struct exec *s, const struct order *o, const int64_t *id, struct err *e);
/* Runs one order to its end. A training step whose loss or gradients are not finite, on whatever rank, runs twice and
 * updates nothing (report.nonfinite); 80 if it does not give the same numbers both times, as in steps that run twice in
 * any case (run.verify_every). One in which a tensor came damaged from another rank runs again, too (report.damaged),
 * and ends with 80 if that happens twice; with 69 where it cannot, in an evaluation. On failure r->code, r->text and e
 * say what happened; the step's effects are discarded (weights are as before). */
int exec_step(struct exec *s, const struct order *o, const int64_t *id, struct report *r, struct err *e);
/* What a run that goes on has behind it: how many of its steps updated nothing, and how many updates were made before
 * the optimizer's state began (0, unless the optimizer was changed). Optimizer, averages and rates count updates. */
struct exec_past { uint64_t n_skipped, before; };
void exec_past_set(struct exec *s, const struct exec_past *p);
struct exec_past exec_past(const struct exec *s);       /* on the executor's thread, between steps */
/* After exec_step, until the next one: output plan.output[output] of the step's plan, of all its samples in their
 * order, row-major, of the graph's type; on the rank of the first replica that the plan says. 70 elsewhere. */
int exec_output_get(struct exec *s, int plan, int output, void *plain, struct err *e);
/* State of this rank, for checkpoints and hashes: row of the placement's registry, logical row-major bytes of its type
 * (state_plain_bytes). get: of a row that this rank holds, on devices by the executor's thread, otherwise by any while
 * no step changes it (exec_request.hold); set: on every rank that does, then exec_state_changed. */
bool exec_owns(const struct exec *s, int row);
bool exec_holds(const struct exec *s, int row);
int exec_state_get(struct exec *s, int row, void *plain, struct err *e);
int exec_state_set(struct exec *s, int row, const void *plain, struct err *e);
int exec_state_changed(struct exec *s, struct err *e);  /* packed weights */
/* As set, with what it has in a run that begins: a weight by its rule and the seed, counters and the optimizer's
 * buffers zeros, an average the weight as it is now. */
int exec_state_begin(struct exec *s, int row, struct err *e);
/* train.ema: averages begin as the weights are now. And they, or the weights themselves, take the weights' place:
 * exec_step does so for evaluation and training; who reads state asks for what he wants, on the executor's thread. */
int exec_averages_begin(struct exec *s, struct err *e);
int exec_averages_use(struct exec *s, bool averaged, struct err *e);
/* After a training step (tests, --dump): the gradient of a parameter, on the rank that speaks for it, logical
 * row-major. */
int exec_grad_get(struct exec *s, int param, void *plain, struct err *e);
/* run.trace: what this rank did in the traced steps. Times are clock_ns. */
enum span_kind { SPAN_STEP, SPAN_ACT, SPAN_KERNEL, SPAN_WAIT, SPAN_MESSAGE };
struct span {
    uint64_t from, to, step;
    int16_t kind, plan;
    /* ACT, MESSAGE: action in the rank's row; KERNEL: phase * groups + group; WAIT: enum account */
    int32_t index;
};
/* In the order in which they ended; lost: how many found no room. Valid until exec_close. */
const struct span *exec_spans(const struct exec *s, int *n, int *lost);
/* From now on the time of each kernel of each step is noted, the first `keep` of each a plan; called again: forgotten.
 * Not in a step. The first call takes the memory, its `keep` is the most that later ones may name. Where the last
 * micro-batch of a step is smaller, that one is not noted. */
void exec_profile(struct exec *s, int keep);
void exec_profile_stop(struct exec *s);                /* what was noted stays */
/* Medians, ns: of a group's kernel for a whole micro-batch; of loading a micro-batch's input. 0: never ran here. */
double exec_profile_ns(const struct exec *s, int plan, enum phase ph, int group);
double exec_profile_best_ns(const struct exec *s, int plan, enum phase ph, int group);   /* the least one instead */
double exec_profile_load_ns(const struct exec *s, int plan);
/* What a kernel met while it was noted: how much of a core its thread had, 0 to 1, and pages that it waited for until
 * they came from a disk. 0, 0: never ran here. */
struct pressure { double core, faults; };
struct pressure exec_profile_pressure(const struct exec *s, int plan, enum phase ph, int group);
/* Of a plan's kernels, ns: all times noted, added up, and the same if each had taken its median or its least time. */
struct kernel_sums { double all, at_medians, at_best; };
struct kernel_sums exec_profile_sums(const struct exec *s, int plan);
/* Ranks a and b of the plan, neighbours: time of a small message one way, large ones beyond it, and what a rank's
 * thread gives to each byte that it sends or receives beside its work (0 for a stream's). Collective for both, all zero
 * for others; nothing may be posted, and exec_request.links was set. */
struct link { double latency_ns, bytes_per_ns, busy_ns_per_byte; };
int link_measure(struct exec *s, int a, int b, struct link *l, struct err *e);
/* what the plan set, and what measures links, take of the device */
uint64_t exec_bytes(const struct exec *s);
/* what the stage holds of it, by the backend's count where it keeps one */
uint64_t exec_taken(const struct exec *s);
void exec_close(struct exec *s);
#endif
