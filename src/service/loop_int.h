/* The inside of struct loop, shared by loop.c (orders, results, life) and loop_control.c (what is asked of it from
 * outside) and loop_rollback.c (what train.nonfinite = rollback does). Nobody else. Thread: the loop's. */
#ifndef SERVICE_LOOP_INT_H
#define SERVICE_LOOP_INT_H
#include <uv.h>
#include "report/plan_accuracy.h"
#include "report/progress.h"
#include "report/data_report.h"
#include "report/straggler.h"
#include "report/prometheus.h"
#include "train/ckpt_policy.h"
#include "service/loop.h"
#include "train/sequencer.h"
#include "service/ctl.h"
#include "service/http.h"

/* orders in flight: one that runs, one that the ranks know, one in the queue */
enum { IN_FLIGHT = ORDER_AHEAD + 1, TICK_MS = 100 };

struct loop {
    uv_loop_t uv;
    uv_thread_t thread;
    uv_async_t wake, quit;
    uv_timer_t tick;
    struct ctl *ctl;
    struct loop_request q;
    struct coordinator coordinator;
    struct sequencer sequencer, before[IN_FLIGHT];        /* now; before each of the last orders */
    uint64_t n_orders;
    struct task *task;                                    /* scratch */
    struct result *result;
    int in_flight;
    struct sums evaluation;
    struct { int n, bad, first; } batches;                /* evaluated: all, those with no finite loss, the first */
    struct progress progress;
    struct plan_accuracy *accuracy;
    struct ckpt_policy policy;
    struct straggler *straggler;                          /* of each rank */
    struct prometheus *prometheus;
    struct http *http;                                    /* NULL: service.metrics is not set */
    double *costs;                                        /* scratch: warmup_count numbers */
    uint64_t steps, samples;
    struct samples damaged;
    uint64_t nonfinite, skipped_in_a_row;                 /* steps that updated nothing */
    struct known known;                                   /* of all steps of the run */
    struct rollback back;                                 /* the last one */
    struct { uint64_t to, times; } reached;               /* the checkpoint gone back to last; to 0: none; how often */
    bool passed_over;                                     /* one was damaged when the run wanted to go back to it */
    bool goes_back;                                       /* one is under way: what comes in is of steps given up */
    char hash[33];
    bool stopped, done;
    bool enough;                                          /* the run ends before its last step: train.patience */
    bool failed;                                          /* the loop itself, which has set the abort code */
    struct { bool on; uint64_t since, step; } pause;      /* step: after which it began */
    const struct conf *file;                              /* as last reloaded, q.rates frees it; NULL: never */
};

/* Gives orders until enough are in flight. */
void loop_orders(struct loop *l);
/* Takes back the orders that ranks do not know yet, so that what is asked counts after the steps under way. */
void loop_revoke(struct loop *l);
void loop_stop(struct loop *l, enum sequencer_stop how);
/* A checkpoint at the next step border that ranks do not know of. False: nothing is new since the last one. */
bool loop_checkpoint(struct loop *l);
/* After a step that was not finite: what is under way comes to its end and is given up. */
void loop_back_begin(struct loop *l, const struct result *r);
/* What comes in until the checkpoint is read. */
int loop_back_take(struct loop *l, const struct result *r, struct err *e);
/* When nothing is under way any more: goes back to the newest sound checkpoint. 79 if there is none, or not once more.
 */
int loop_back_turn(struct loop *l, struct err *e);
/* The end of the run is not begun before all steps are known to be finite. */
bool loop_back_waits(const struct loop *l);
void loop_fail(struct loop *l, const struct err *e);      /* ends the run */
void loop_pause_end(struct loop *l);                      /* loop_control.c: if it pauses */
/* loop_control.c: opens the control socket and service.metrics. 73. */
int loop_control(struct loop *l, struct err *e);
#endif
