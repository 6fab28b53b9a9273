/* One rank of a running job: it hears orders, runs steps and reports; rank 0 also gives the orders and gathers the
 * reports.
 *
 * Thread: the executor's, the only one that calls the transport. The executor gets side_tp instead of the transport
 * itself: each time it drives its transfers, this looks for orders and reports, so that a failure elsewhere ends a step
 * that waits for it. */
#ifndef DAEMON_RUN_SIDE_H
#define DAEMON_RUN_SIDE_H
#include "daemon/report/outputs.h"
#include "daemon/run/probe.h"
#include "daemon/run/ring.h"
#include "daemon/run/save.h"
#include "exec/exec.h"

struct side;
struct predict;                                          /* report/predict.h */
struct confusion;                                        /* report/confusion.h */
struct side *side_new(struct tp *under, const struct job *j);
struct tp *side_tp(struct side *s);
void side_exec(struct side *s, struct exec *exec);     /* after exec_bind */
void side_save(struct side *s, struct save *save);       /* before the first order; borrowed */
/* Where it says what it is at, beside the executor. Before the first step. */
void side_beat(struct side *s, struct exec_beat *beat);
/* What brings this rank's state back to the checkpoint of a step. Before the first order. */
void side_back(struct side *s, int (*back)(void *ctx, uint64_t step, struct err *e), void *ctx);
/* what times the first steps, borrowed; NULL: nothing does */
void side_probe(struct side *s, struct probe *p);

/* Rank 0's threads: orders (struct task) come in, results (struct result) go out. */
struct lead {
    struct ring *orders, *results;
    /* gets probe_count numbers once, the sums over all ranks; NULL: not wanted */
    struct ring *costs;
    const struct outputs *files;                          /* what ORDER_SAVE writes */
    /* who wants what evaluations bring; NULL: nobody */
    struct predict *predict; struct confusion *confusion;
    uint64_t skipped;                                     /* steps in a row before the first one that updated nothing */
    void (*wake)(void *ctx); void *ctx;                   /* called when a result was put */
};
/* Rank 0: runs orders until ORDER_STOP. After a failure all other ranks have been told, and e is the first cause. */
int side_lead(struct side *s, const struct lead *l, struct err *e);
/* Other ranks: -1 after a failure here (already reported to rank 0) or elsewhere; e->code is the exit code. */
int side_follow(struct side *s, struct err *e);
/* The same after a failure outside of these two (--profile). */
void side_fail(struct side *s, struct err *e);
void side_free(struct side *s);
#endif
