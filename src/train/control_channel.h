/* One rank of a running job: it hears orders, runs steps and reports; rank 0 also gives the orders and gathers the
 * reports.
 *
 * Thread: the executor's, the only one that calls the transport. The executor gets control_of: each time it drives its
 * transfers, it looks for orders and reports here, so that a failure elsewhere ends a step that waits for it. */
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
struct control *control_new(struct tp *tp, const struct job *j);
struct exec_control control_of(struct control *s);       /* for exec_request; valid until control_free */
void control_exec(struct control *s, struct exec *exec); /* after exec_bind */
void control_save(struct control *s, struct save *save); /* before the first order; borrowed */
/* Where it says what it is at, beside the executor. Before the first step. */
void control_beat(struct control *s, struct exec_beat *beat);
/* What brings this rank's state back to the checkpoint of a step. Before the first order. */
void control_back(struct control *s, int (*back)(void *ctx, uint64_t step, struct err *e), void *ctx);
/* what times the first steps, borrowed; NULL: nothing does */
void control_probe(struct control *s, struct warmup_profile *p);

/* Rank 0's threads: orders (struct task) come in, results (struct result) go out. */
struct coordinator {
    struct queue *orders, *results;
    /* gets warmup_count numbers once, the sums over all ranks; NULL: not wanted */
    struct queue *costs;
    const struct outputs *files;                          /* what ORDER_SAVE writes */
    /* who wants what evaluations bring; NULL: nobody */
    struct predict *predict; struct confusion *confusion;
    uint64_t skipped;                                     /* steps in a row before the first one that updated nothing */
    void (*wake)(void *ctx); void *ctx;                   /* called when a result was put */
};
/* Rank 0: runs orders until ORDER_STOP. After a failure all other ranks have been told, and e is the first cause. */
int coordinator_run(struct control *s, const struct coordinator *l, struct err *e);
/* Other ranks: -1 after a failure here (already reported to rank 0) or elsewhere; e->code is the exit code. */
int worker_run(struct control *s, struct err *e);
/* The same after a failure outside of these two (--profile). */
void control_fail(struct control *s, struct err *e);
void control_free(struct control *s);
#endif
