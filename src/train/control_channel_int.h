/* The inside of struct control, shared only by control_channel.c (messages), coordinator.c (rank 0), worker.c (other
 * ranks) and eval_gather.c. */
#ifndef TRAIN_CONTROL_CHANNEL_INT_H
#define TRAIN_CONTROL_CHANNEL_INT_H
#include "report/result.h"
#include "train/sequencer.h"
#include "train/interim_rank.h"
#include "cluster/shutdown.h"
#include "cluster/heartbeat.h"
#include "train/control_channel.h"

/* The transport's streams of messages (send_msg). Orders come from rank 0. To rank 0 go reports, tensors of state,
 * costs of the first steps, files of a checkpoint, outputs of an evaluation. */
enum { CONTROL_ORDER, CONTROL_REPORT, CONTROL_STATE, CONTROL_COSTS, CONTROL_SAVED, CONTROL_VALUES, CONTROL_STREAMS };
_Static_assert(CONTROL_STREAMS <= (int)TP_UNDER, "the other streams are the transports'");
enum { STATE_PIECE = 64 << 20 };
/* A queue of tasks in a fixed number of buffers. */
enum { TASKS = 8, AHEAD_TASKS = 2, RUN_AHEAD = 2, OPEN_RESULTS = AHEAD_TASKS + RUN_AHEAD };
struct tasks { struct task *at[TASKS]; int first, n; };

struct control {
    struct tp *tp;
    const struct job *job;
    struct exec *exec;
    struct interim *interim;                              /* NULL: this rank has none */
    int rank, n;
    struct warmup_profile *warmup;
    struct save *save;
    int (*back)(void *ctx, uint64_t step, struct err *e); void *back_ctx;
    struct exec_beat *beat, unwatched;
    bool warm[2];                                         /* whether it has trained, has evaluated */
    size_t task_bytes, order_bytes;
    struct tasks tasks;                                  /* not run yet; received (worker) or announced (coordinator) */
    size_t piece;                                         /* bytes of a state tensor in one message */
    int n_prefetched;                                     /* how many tasks the executor knows */
    struct task *fresh;                                   /* scratch for one message */
    uint64_t idle_since;                                  /* worker: without a task since then; 0: has one */
    /* Tensors that evaluations bring to rank 0 (job_wants), of the job and of job.interim: the rank that has the
     * tensor, its bytes per sample, the tensors of a batch: on rank 0 one for each open result, on that rank one. */
    struct values { int rank; size_t bytes; float *at[OPEN_RESULTS]; } values[2];
    /* rank 0 */
    double *terms; int n_terms;                           /* scratch for a sum over ranks */
    /* A checkpoint has begun. The loop learns it after n reports of every rank are published. */
    struct { bool set; uint64_t after; struct order o; struct result *r; } mark;
    struct result *open[OPEN_RESULTS];                    /* announced; reports are missing */
    uint64_t began[OPEN_RESULTS], ended[OPEN_RESULTS];    /* when the task began here; when the last report came */
    uint64_t first_open, n_opened, last_end;
    uint64_t skipped;                                     /* consecutive published steps without an update */
    bool *has_failed; int n_failed;                       /* of each rank: whether it knows that the job failed */
    uint64_t *n_reports;                                  /* of each rank: reports received since the start */
    /* last published state: whether it waits for a report, of which rank, of which task */
    bool awaits; int awaited; uint64_t awaited_of;
    /* what warm-up profiles report: the sum, scratch, how many numbers, how many ranks are in the sum */
    double *costs, *costs_received; int n_costs, of_costs;
};

static inline struct task *tasks_head(struct tasks *t) { return t->n ? t->at[t->first] : NULL; }
static inline struct task *tasks_at(struct tasks *t, int i) { return t->at[(t->first + i) % TASKS]; }
static inline void tasks_pop(struct tasks *t) { t->first = (t->first + 1) % TASKS; t->n--; }

/* Drives the transport and receives messages. */
int control_poll(struct control *s, struct err *e);
/* Does the same after a failure: the transport fails again at each call, but still carries messages. */
void control_listen(struct control *s);
void control_pause(void);                                 /* a short sleep while idle */
/* Sends a state tensor to rank 0, which calls state_recv. In pieces, because messages are at most 2 GiB long and
 * transports copy them. */
int state_send(struct control *s, const void *p, size_t bytes, struct err *e);
int state_recv(struct control *s, int from, void *p, size_t bytes, struct err *e);
/* The same for any stream. */
int control_send(struct control *s, int stream, const void *p, size_t bytes, struct err *e);
int control_recv(struct control *s, int from, int stream, void *p, size_t bytes, struct err *e);
bool control_is_step(const struct order *o);
int control_steps(const struct control *s, int n);       /* how many of the first n tasks are steps */
/* This rank does something outside of steps that may take long, so the failure detector must not suspect it. doing
 * NULL: it has finished. */
void control_elsewhere(struct control *s, enum shutdown_phase phase, const char *doing);
/* Begins the checkpoint at the head of the tasks and removes it from them, after the previous one was written. 1: done;
 * 0: not yet; 74 as from save_await. */
int control_checkpoint(struct control *s, struct order *o, struct err *e);
/* Runs and removes the roll-back at the head of the tasks, after this rank has finished all tasks before it. Returns
 * when every rank has read the checkpoint. If it is damaged on one rank, it counts as damaged on all; *damaged of rank
 * 0 then gives the reason. */
int control_rollback(struct control *s, struct err *damaged, struct err *e);
/* Publishes for the failure detector: in the step of that order, NULL: in none; and the rank that this rank waits
 * for. */
void control_publish(struct control *s, const struct order *o, int waits_for);
/* Lets the executor read ahead for tasks that it does not know yet. */
int control_prefetch(struct control *s, struct err *e);
/* Runs the step at the head of the tasks and removes it. Sends the results of its warm-up profile to rank 0, or adds
 * them there. */
int control_step(struct control *s, struct report *r, struct err *e);
/* eval_gather.c. Sends the outputs of the step that has just run to rank 0, or stores them there. */
int eval_gather_send(struct control *s, const struct order *o, struct err *e);
/* Rank 0: passes the outputs of the oldest open result, which all ranks have reported, to l->predict or
 * l->confusion. */
int eval_gather_take(struct control *s, const struct coordinator *l, struct err *e);
void eval_gather_open(struct control *s);
void eval_gather_free(struct control *s);
/* What a rank that fails sends instead of a report, and rank 0's order to end. */
struct failure_report { int32_t rank; struct failure f; };
struct abort_order { struct order o; struct failure f; };
_Static_assert(sizeof(struct failure_report) != sizeof(struct report), "their size tells them apart");
/* coordinator.c. Takes a report. 70 if it was not expected. */
int coordinator_report(struct control *s, const struct report *r, struct err *e);
/* Takes the failure that another rank reports, or its answer to rank 0's. */
void coordinator_failed(struct control *s, const struct failure_report *r);
/* control_fail of rank 0 (coordinator.c) and of other ranks (worker.c). */
void coordinator_fail(struct control *s, struct err *e);
void worker_fail(struct control *s, struct err *e);
#endif
