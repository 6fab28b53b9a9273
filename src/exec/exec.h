/* One rank's executor: its rows of a plan set, a backend, a transport, a data feed. Opaque.
 *
 * Users: train (and tests). Thread: the one that opened it. No globals, so several ranks can live in one process
 * (transport local). exec_step runs one row and allocates nothing.
 *
 * This folder: binding a plan to memory and kernels (bind.c), running a row (run.c), posts and waits (post.c, wait.c),
 * sums and updates (state.c), agreement after a step (finite.c), measuring (meter.c, profile.c, trace.c). See
 * docs/design/exec.md. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H
#include <stdatomic.h>
#include "backend/be.h"
#include "transport/tp.h"
#include "data/ds.h"
#include "plan/plan.h"

enum step_kind { STEP_TRAIN, STEP_EVAL, STEP_KINDS };    /* the caller defines other kinds of orders */
enum { ORDER_AHEAD = 2 };                                /* steps ordered before the outcome of earlier ones is known */
/* what rank 0 decides for a step; n sample ids follow when it is sent */
struct order {
    uint32_t kind, plan;                                 /* TRAIN, EVAL: index of the plan in the set */
    uint64_t step;                                       /* 1-based; micro-steps of an evaluation count on */
    uint64_t position;                                   /* of the first sample in the order of samples (feed_batch) */
    uint64_t n_skipped;                                  /* known earlier steps that updated nothing */
    double learning_rate;                                /* if no more steps are skipped */
    double after_skips[ORDER_AHEAD];                     /* [k]: if k + 1 more steps updated nothing */
    double weight;                                       /* of all its samples (ds_weight); means divide by it */
    double tokens;                                       /* of its samples, without padding (ds_filled); 0: all */
    int32_t n;                                           /* samples */
    /* for the caller's kinds, unused here (enum order_kind) */
    int32_t code, row, what; uint32_t serial;
};
/* skipped: how many of all earlier steps updated nothing */
static inline double order_rate(const struct order *o, uint64_t skipped)
{
    return skipped > o->n_skipped ? o->after_skips[skipped - o->n_skipped - 1] : o->learning_rate;
}
/* One score (graph_scores) over some samples. */
struct score_sum { double numerator, denominator; };
/* The number that is not finite: the loss, or the gradient of parameter NONFINITE_GRADIENT + i. */
enum nonfinite { NONFINITE_LOSS = 1, NONFINITE_GRADIENT };
/* the result of a step on one rank; open, fixed size, sent to rank 0 */
struct report {
    uint64_t step; int32_t rank;                         /* rank: among all */
    /* Scores that this rank computes: sums over samples, added in sample order; 0 for other scores. */
    struct score_sum score[MAX_SCORES];
    int64_t samples;                                     /* on the rank that has the plan's first output; else 0 */
    double grad_norm;                                    /* -1: not computed */
    /* Of a training step: a digest of the squared norms of all gradients in network order, equal on all ranks; "": one
     * of them, or the loss, is not finite. */
    char grad_hash[17];
    /* of a training step, equal on all ranks. Not 0: enum nonfinite, in both runs of the step; nothing was updated */
    int32_t nonfinite;
    /* also equal on all ranks: tensors damaged on the way between ranks, for which the step ran again. from, to: the
     * ranks of exactly one such tensor, otherwise -1 */
    int32_t damaged, damaged_from, damaged_to;
    uint64_t ns[ACC_COUNT], total_ns;
    /* gradients that were added to others, and the time; 0 on devices, where it is unknown */
    uint64_t sum_bytes, sum_ns;
    /* bytes copied out of other pipelines' memory, and the time */
    uint64_t read_bytes, read_ns;
    /* weights read from their file since the previous step, and the time while any was being read */
    uint64_t fetch_bytes, fetch_ns;
    /* since the previous step: waits for the next order, reports, evaluation */
    uint64_t idle_ns;
    /* allocated; and the process's growth since exec_open, as measured by the system */
    uint64_t allocated_bytes, resident_bytes;
    /* the part of it while the backend prepared kernels, so mostly its libraries */
    uint64_t library_bytes;
    uint64_t feed_bytes;                                 /* exec_feed_bytes, plus the data sets' memory */
    uint64_t skipped;                                    /* damaged samples that it skipped so far (ds_damage) */
    struct err first_skipped;                            /* why it skipped the first of them */
};

/* What a rank is doing, for the threads that watch it. Only the rank's thread writes it; other threads read it at any
 * time. The executor writes count, polls, where and wait; its caller writes the rest. */
struct exec_beat {
    _Atomic uint64_t count;                              /* grows with every action and kernel */
    _Atomic uint64_t polls;                              /* grows while it waits, with every poll */
    _Atomic uint64_t step, where;                        /* where: the running action (exec_where); 0: none */
    _Atomic uint64_t slowest_ns;                         /* of all steps so far */
    atomic_int wait;                                     /* a rank, or one of the following */
    atomic_int state;                                    /* set of enum beat_state */
};
enum { EXEC_WAITS_NOT = -1, EXEC_WAITS_DEVICE = -2 };
/* IN: in a step, or waiting for others to end theirs. EVALUATES: the step is an evaluation. WARM: a step of this kind
 * has run before. ELSEWHERE: doing something else that may take long, such as reading a checkpoint; others wait
 * rightly. */
enum beat_state { BEAT_IN = 1, BEAT_EVALUATES = 2, BEAT_WARM = 4, BEAT_ELSEWHERE = 8 };
/* n: micro-batches of the action, 0 if it belongs to no micro-batch */
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
static inline void exec_beat_poll(struct exec_beat *b)
{
    uint64_t n = atomic_load_explicit(&b->polls, memory_order_relaxed);
    atomic_store_explicit(&b->polls, n + 1, memory_order_relaxed);
}
static inline void exec_beat_wait(struct exec_beat *b, int whom)
{
    atomic_store_explicit(&b->wait, whom, memory_order_relaxed);
}

/* A thread that reads state, for a checkpoint. on: no step may change state meanwhile; moved: counts what it has
 * read. */
struct exec_hold { atomic_bool on; _Atomic uint64_t moved; };

/* What a job adds to the transport. listen: receives the ranks' messages other than tensors, whenever the executor
 * drives its transfers. reduce: as tp_ops.reduce, but it ends if the job fails meanwhile. All NULL: nothing is added,
 * and the transport's own reduce is used. */
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
    int unit;                                            /* index of the device on this host; 0 if there is only one */
    struct tp *tp; struct exec_control control;
    /* rank: of the plan, whose row runs here. tp_rank: the transport's rank of each of the plan's ranks, first those of
     * the first pipeline, then of the next; NULL: in this order. The plans name the pipeline that runs here
     * (plan_request.dp). */
    int rank; const int *tp_rank;
    struct ds *train, *test;                             /* opened on this rank; NULL if no plan loads from it */
    const cpu_set_t *reader_cores;                       /* as in struct feed_want */
    /* for link_measure: allocates its memory, connects neighbours */
    bool links;
    bool filled;                                         /* the caller sets all weights after exec_bind: draw none */
    bool graphs;                                         /* record actions and replay them, if the backend can */
    /* not 0: leave the step as soon as possible; the value is the exit code */
    atomic_int *abort;
    const struct exec_hold *hold;                        /* NULL: no thread reads state while steps run */
    uint64_t hold_ns;                                    /* how long that reader may stall; 0: DEADLINE_WRITER */
    struct exec_beat *beat;                              /* NULL: no thread watches */
};
struct exec;
/* Opens the device and computes all sizes; it allocates no memory there. 69/78. */
int exec_open(const struct exec_request *r, struct exec **out, struct err *e);
/* After exec_open: free memory of the device; SIZE_MAX if unknown. The plan set will take exec_bytes of it. 69 */
int exec_free_memory(struct exec *s, size_t *bytes, struct err *e);
/* Once, after exec_open: all memory, kernels, channels; parameters are initialised from the seed (tied copies, too)
 * unless `filled`. 69/70. */
int exec_bind(struct exec *s, struct err *e);
/* Gives a device transport the computing stream and the links that it will serve; with host transports, ranks of a host
 * map each other's windows. Collective, after all ranks have bound their stage, before the first step. 69 */
int exec_connect(struct exec *s, struct err *e);
/* Host bytes of a rank's buffers for samples that are read ahead, under this plan set. Pure. */
size_t exec_feed_bytes(const struct conf *c, struct plan *const *plan, int n_plans, int rank);
/* Announces the sample ids of a coming order, so that the feed can read ahead. Call it in order, at most one step ahead
 * of exec_step. */
int exec_prefetch(struct exec *s, const struct order *o, const int64_t *id, struct err *e);
/* Runs one order to its end. A training step whose loss or gradients are not finite, on any rank, runs twice and
 * updates nothing (report.nonfinite). If the second run gives different numbers, it ends with 80; so do steps that
 * always run twice (run.verify_every). A step in which a tensor from another rank is damaged runs again, too
 * (report.damaged), and ends with 80 if that happens twice; with 69 in an evaluation, which cannot run again. After a
 * failure the step's effects are discarded (weights are as before). */
int exec_step(struct exec *s, const struct order *o, const int64_t *id, struct report *r, struct err *e);
/* The past of a resumed run. n_skipped: its steps that updated nothing. before: updates before the optimizer's state
 * began (0, unless the optimizer was changed). Optimizer, averages and rates count updates. */
struct exec_past { uint64_t n_skipped, before; };
void exec_past_set(struct exec *s, const struct exec_past *p);
struct exec_past exec_past(const struct exec *s);       /* on the executor's thread, between steps */
/* The time until now was for something else: report.idle_ns of the next step does not count it. */
void exec_idle_since(struct exec *s);
/* After exec_step, until the next one: plan.output[output] of the step's plan, for all its samples in their order,
 * row-major, of the graph's type. Only on the plan's rank of it in the first pipeline; 70 elsewhere. */
int exec_output_get(struct exec *s, int plan, int output, void *plain, struct err *e);
/* State of this rank, for checkpoints and hashes: row of the placement's registry, logical row-major bytes of its type
 * (state_plain_bytes). get: a row that this rank holds; on devices by the executor's thread, otherwise by any thread
 * while no step changes it (exec_request.hold). set: on every rank that holds it, then exec_state_changed. */
bool exec_owns(const struct exec *s, int row);
bool exec_holds(const struct exec *s, int row);
int exec_state_get(struct exec *s, int row, void *plain, struct err *e);
/* Where a row lies in host memory as get gives it and set takes it; NULL: nowhere. */
void *exec_state_values(struct exec *s, int row);
int exec_state_set(struct exec *s, int row, const void *plain, struct err *e);
/* `bytes` values of a tensor in a file, row-major, from offset `at` on. */
struct exec_source { const char *path; uint64_t at; size_t bytes; enum dtype type; };
/* Instead of exec_state_set: the row's values are read from this file whenever they are needed. 1: so be it; 0: only
 * rows that lie in files (HOME_FILE) in the form of this file can do that. -1: 66. */
int exec_state_from(struct exec *s, int row, const struct exec_source *from, struct err *e);
int exec_state_changed(struct exec *s, struct err *e);  /* makes packed weights again */
/* Sets a row to its initial value: a weight by its rule and the seed, counters and optimizer buffers to zeros, an
 * average to the current weight. */
int exec_state_begin(struct exec *s, int row, struct err *e);
/* train.ema. begin: averages become equal to the current weights. use: puts averages, or the weights again, in the
 * weights' place. exec_step does so for evaluation and training. A caller that reads state selects one of them, on the
 * executor's thread. */
int exec_averages_begin(struct exec *s, struct err *e);
int exec_averages_use(struct exec *s, bool averaged, struct err *e);
/* After a training step (tests, --dump): the gradient of a parameter, on the rank that updates it, logical
 * row-major. */
int exec_grad_get(struct exec *s, int param, void *plain, struct err *e);
/* run.trace: the activity of this rank in the traced steps. Times are clock_ns. */
enum span_kind { SPAN_STEP, SPAN_ACT, SPAN_KERNEL, SPAN_WAIT, SPAN_MESSAGE };
struct span {
    uint64_t from, to, step;
    int16_t kind, plan;
    /* ACT, MESSAGE: index in the rank's row; KERNEL: phase * groups + group; WAIT: enum account */
    int32_t index;
};
/* In the order of their ends; lost: number of spans without space. Valid until exec_close. */
const struct span *exec_spans(const struct exec *s, int *n, int *lost);
/* From now on the times of each kernel are recorded, the first `keep` of each kernel and plan. Another call forgets
 * them. Not in a step. The first call allocates the memory; later calls may not exceed its `keep`. If the last
 * micro-batch of a step is smaller, its kernels are not recorded. */
void exec_profile(struct exec *s, int keep);
void exec_profile_stop(struct exec *s);                /* recorded times stay */
/* Medians, ns: of a group's kernel for a whole micro-batch; of loading a micro-batch's input. 0: never ran here. */
double exec_profile_ns(const struct exec *s, int plan, enum phase ph, int group);
double exec_profile_best_ns(const struct exec *s, int plan, enum phase ph, int group);   /* the least one instead */
double exec_profile_load_ns(const struct exec *s, int plan);
/* The conditions of a kernel while it was recorded: its thread's share of a core, 0 to 1, and pages that it waited for
 * until they came from a disk. 0, 0: never ran here. */
struct pressure { double core, faults; };
struct pressure exec_profile_pressure(const struct exec *s, int plan, enum phase ph, int group);
/* A plan's kernels, ns: the sum of all recorded times; the same sum if each time were its median, or its least. */
struct kernel_sums { double all, at_medians, at_best; };
struct kernel_sums exec_profile_sums(const struct exec *s, int plan);
/* Ranks a and b of the plan, neighbours: one-way time of a small message, the rate of large messages beyond it, and the
 * time that a rank's thread spends on each byte it sends or receives during its work (0 with a stream). Collective for
 * both, all zero for others. Nothing may be posted; exec_request.links must be set. */
struct link { double latency_ns, bytes_per_ns, busy_ns_per_byte; };
int link_measure(struct exec *s, int a, int b, struct link *l, struct err *e);
/* device bytes of the plan set and of link_measure */
uint64_t exec_bytes(const struct exec *s);
/* device bytes that this rank holds, by the backend's count if it has one */
uint64_t exec_taken(const struct exec *s);
double exec_peak(struct exec *s);                        /* be_ops.peak; 0: unknown. After exec_bind */
void exec_close(struct exec *s);
#endif
