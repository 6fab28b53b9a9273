/* One rank of a running job: hears orders, runs steps, reports; on rank 0 also hands the orders out and gathers the
 * reports.
 *
 * Thread: the executor's, the only one that calls the transport. The stage gets side_tp instead of the bare transport:
 * each time the executor drives its transfers, orders and reports that came in are looked at too, so that a failure
 * elsewhere ends a step that waits for it. */
#ifndef DAEMON_RUN_SIDE_H
#define DAEMON_RUN_SIDE_H
#include "daemon/report/outputs.h"
#include "daemon/run/probe.h"
#include "daemon/run/ring.h"
#include "exec/exec.h"

struct side;
struct side *side_new(struct tp *under, const struct job *j);
struct tp *side_tp(struct side *s);
void side_exec(struct side *s, struct exec *exec);     /* after exec_bind */
/* and what times the first steps; borrowed, NULL: nothing does */
void side_probe(struct side *s, struct probe *p);

/* rank 0's threads: orders (struct task) come in, results (struct result) go out */
struct lead {
    struct ring *orders, *results;
    /* of probe_count numbers, once: the sums over all ranks; NULL: nobody asks */
    struct ring *costs;
    const struct outputs *files;                          /* those that ORDER_SAVE writes */
    void (*wake)(void *ctx); void *ctx;                   /* a result was put */
};
/* Rank 0: runs orders until ORDER_STOP. On failure all other ranks have been told, and e is the first cause. */
int side_lead(struct side *s, const struct lead *l, struct err *e);
/* Other ranks: -1 after a failure here (already reported to rank 0) or elsewhere; e->code is the exit code. */
int side_follow(struct side *s, struct err *e);
/* The same after a failure of what neither of them ran (--profile). */
void side_fail(struct side *s, struct err *e);
void side_free(struct side *s);
#endif
