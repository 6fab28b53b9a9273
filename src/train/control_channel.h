/* One rank of a running job: it receives orders, runs steps and reports. Rank 0 also gives the orders and gathers the
 * reports.
 *
 * Thread: the executor's, the only one that calls the transport. The executor gets control_of. Each time it drives its
 * transfers it also checks for orders and reports here. So a failure elsewhere ends a step that waits for it. */
#ifndef TRAIN_CONTROL_CHANNEL_H
#define TRAIN_CONTROL_CHANNEL_H
#include "report/output_paths.h"
#include "train/warmup_profile.h"
#include "cluster/queue.h"
#include "train/ckpt_writer.h"
#include "exec/exec.h"

struct control;
struct predict;                                          /* report/predict.h */
struct confusion;                                        /* report/confusion.h */
struct generation;                                       /* train/generation.h */
struct control *control_new(struct tp *tp, const struct job *j);
struct exec_control control_of(struct control *s);       /* for exec_request; valid until control_free */
struct interim;                                          /* train/interim_rank.h */
/* After exec_bind of both. interim NULL: this rank has none. */
void control_exec(struct control *s, struct exec *exec, struct interim *interim);
void control_save(struct control *s, struct save *save); /* before the first order; borrowed */
/* Where this rank, beside the executor, publishes its state. Before the first step. */
void control_beat(struct control *s, struct exec_beat *beat);
/* Sets the function that restores this rank's state from the checkpoint of a step. Before the first order. */
void control_set_restore(struct control *s, int (*back)(void *ctx, uint64_t step, struct err *e), void *ctx);
/* times the first steps, borrowed; NULL: no timing */
void control_set_warmup(struct control *s, struct warmup_profile *p);

/* Connects rank 0's threads: orders (struct task) come in, results (struct result) go out. */
struct coordinator {
    struct queue *orders, *results;
    /* gets warmup_count numbers once, the sums over all ranks; NULL: not needed */
    struct queue *costs;
    const struct outputs *files;                          /* where ORDER_SAVE writes */
    const struct model_files *model;                      /* NULL: it writes no RUN/model/ */
    /* get the outputs of evaluations; NULL: not needed */
    struct predict *predict; struct confusion *confusion; struct generation *generation;
    uint64_t skipped;                                    /* consecutive steps without an update before the first step */
    void (*wake)(void *ctx); void *ctx;                   /* called after a result was put */
};
/* Rank 0: runs orders until ORDER_STOP. -1: a failure; all other ranks have been informed, and e is the first cause. */
int coordinator_run(struct control *s, const struct coordinator *l, struct err *e);
/* Other ranks: -1 after a failure here (already reported to rank 0) or elsewhere; e->code is the exit status. */
int worker_run(struct control *s, struct err *e);
/* Does the same after a failure outside of these two (--profile). */
void control_fail(struct control *s, struct err *e);
void control_free(struct control *s);
#endif
