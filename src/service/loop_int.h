/* The inside of struct loop, shared only by loop.c (orders, results, life), loop_control.c (requests from outside) and
 * loop_rollback.c (train.nonfinite = rollback). Thread: the scheduler's. */
#ifndef SERVICE_LOOP_INT_H
#define SERVICE_LOOP_INT_H
#include <uv.h>
#include "train/ckpt_policy.h"
#include "service/loop.h"
#include "train/sequencer.h"
#include "service/ctl.h"
#include "service/http.h"

/* orders in flight: one runs, one is known to the ranks, one is in the queue */
enum { IN_FLIGHT = ORDER_AHEAD + 1, TICK_MS = 100 };

/* A roll-back, because a number in `step` was not finite (report.nonfinite: what). to: the checkpoint's step; times:
 * how often the run has returned to it. The run continues with the sample at `position`. */
struct rollback { uint64_t step, to, position, times; int what; };
struct loop {
    uv_loop_t uv;
    uv_thread_t thread;
    uv_async_t wake, quit;
    uv_timer_t tick;
    struct ctl *ctl;
    struct loop_request q;
    struct event_rates rates;
    struct coordinator coordinator;
    struct sequencer sequencer, before[IN_FLIGHT];        /* now; before each of the last orders */
    uint64_t n_orders;
    struct task *task;                                    /* scratch */
    struct result *result;
    int in_flight;
    struct sums evaluation;
    struct { int n, bad, first; } batches;      /* evaluated: all, those whose loss is not finite, the first of these */
    struct ckpt_policy policy;
    struct http *http;                                    /* NULL: service.metrics is not set */
    double *costs;                                        /* scratch: warmup_count numbers */
    uint64_t steps, samples, began;
    uint64_t stop_at;                                     /* run.stop_before_end; 0: never */
    bool worked;                                          /* a step or an evaluation has ended */
    uint64_t nonfinite, skipped_in_a_row;                 /* steps without an update */
    struct known known;                                   /* of all steps of the run */
    struct rollback back;                                 /* the last one */
    struct { uint64_t to, times; } reached;               /* the last checkpoint reached; to 0: none; number of times */
    bool passed_over;                                  /* a checkpoint was damaged when the run tried to return to it */
    bool goes_back;                                       /* a roll-back is running: results are of discarded steps */
    char hash[33];
    bool stopped, done, generated;
    bool enough;                                          /* the run ends before its last step: train.patience */
    bool failed;                                          /* the loop itself failed and has set the abort code */
    struct { bool on; uint64_t since, step; } pause;      /* step: the last one before the pause */
    const struct conf *file;                              /* as last reloaded, q.rates frees it; NULL: never */
};

/* Tells the number of the last step. */
void loop_planned(struct loop *l);
/* Puts orders into the queue until enough are in flight. */
void loop_orders(struct loop *l);
/* Revokes the orders that ranks do not know yet, so that a request takes effect after the running steps. */
void loop_revoke(struct loop *l);
void loop_stop(struct loop *l, enum sequencer_stop how);
/* Requests a checkpoint at the next step border that ranks do not know yet. False: nothing is new since the last
 * one. */
bool loop_checkpoint(struct loop *l);
/* After a step that was not finite: running orders end, and their results are discarded. */
void loop_back_begin(struct loop *l, const struct result *r);
/* Takes the results that come until the checkpoint is read. */
int loop_back_take(struct loop *l, const struct result *r, struct err *e);
/* When no order is running: returns to the newest valid checkpoint. 79 if there is none, or if the limit of attempts is
 * reached. */
int loop_back_turn(struct loop *l, struct err *e);
/* Whether the end of the run must wait until all steps are known to be finite. */
bool loop_back_waits(const struct loop *l);
void loop_fail(struct loop *l, const struct err *e);      /* ends the run */
void loop_pause_end(struct loop *l);                      /* loop_control.c: if it pauses */
/* loop_control.c: opens the control socket and service.metrics. 73. */
int loop_control(struct loop *l, struct err *e);
#endif
