/* The inside of struct side, shared by side.c (messages), lead.c (rank 0) and follow.c (other ranks). Nobody else. */
#ifndef DAEMON_RUN_SIDE_INT_H
#define DAEMON_RUN_SIDE_INT_H
#include "daemon/report/metrics.h"
#include "daemon/run/course.h"
#include "daemon/run/fate.h"
#include "daemon/run/pulse.h"
#include "daemon/run/side.h"

enum { STATE_PIECE = 64 << 20 };
/* A queue of tasks in a fixed number of buffers. */
enum { TASKS = 8, AHEAD_TASKS = 2, RUN_AHEAD = 2, OPEN_RESULTS = AHEAD_TASKS + RUN_AHEAD };
struct tasks { struct task *at[TASKS]; int first, n; };

struct side {
    struct tp tp;                                         /* what the executor sees; forwards to under */
    struct tp *under;
    const struct job *job;
    struct exec *exec;
    int rank, n;
    struct probe *probe;
    struct save *save;
    int (*back)(void *ctx, uint64_t step, struct err *e); void *back_ctx;
    struct exec_beat *beat, unwatched;
    bool warm[2];                                         /* has trained, has evaluated */
    size_t task_bytes, order_bytes;
    struct tasks tasks;                                   /* not run yet: heard (follow) or announced (lead) */
    size_t piece;                                         /* bytes of a state tensor in one message */
    int n_prefetched;                                     /* how many of the tasks the executor knows */
    struct task *fresh;                                   /* scratch for one message */
    bool told;                                            /* follow: rank 0 has ordered the end */
    uint64_t idle_since;                                  /* follow: without a task since then; 0: has one */
    /* Values that evaluations bring to rank 0 (job_wants): the rank that has the tensor, and bytes of it a sample;
     * those of a batch: on rank 0 of each open result, elsewhere of one alone. */
    int has_values; size_t value_bytes; float *values[OPEN_RESULTS];
    /* rank 0 */
    double *terms; int n_terms;                           /* scratch of a sum over ranks */
    /* A checkpoint has begun: the loop hears of it when n reports of every rank are published. */
    struct { bool set; uint64_t after; struct order o; struct result *r; } mark;
    struct result *open[OPEN_RESULTS];                    /* announced, reports still missing */
    uint64_t began[OPEN_RESULTS], ended[OPEN_RESULTS];    /* when the task began here; when the last report came */
    uint64_t first_open, n_opened, last_end;
    uint64_t skipped;                                     /* published steps in a row that updated nothing */
    bool *has_failed; int n_failed;                       /* of each rank: whether it knows that the job failed */
    uint64_t *n_reports;                                  /* of each rank: reports heard since the start */
    bool awaits; int awaited; uint64_t awaited_of;        /* what it said last about reports */
    /* what probes report: the sum, scratch, how many numbers, how many ranks are in the sum */
    double *costs, *costs_heard; int n_costs, of_costs;
};

static inline struct task *tasks_head(struct tasks *t) { return t->n ? t->at[t->first] : NULL; }
static inline struct task *tasks_at(struct tasks *t, int i) { return t->at[(t->first + i) % TASKS]; }
static inline void tasks_pop(struct tasks *t) { t->first = (t->first + 1) % TASKS; t->n--; }

/* Drives the transport and takes in messages. */
int side_poll(struct side *s, struct err *e);
/* The same after a failure: the transport fails again at each call, but still carries messages. */
void side_listen(struct side *s);
void side_pause(void);                                    /* a short sleep while idle */
/* Sends a state tensor to rank 0, and hears it there: in pieces, because messages are at most 2 GiB long and transports
 * copy them. */
int side_say_state(struct side *s, const void *p, size_t bytes, struct err *e);
int side_hear_state(struct side *s, int from, void *p, size_t bytes, struct err *e);
/* The same by another stream. */
int side_say(struct side *s, enum tp_stream stream, const void *p, size_t bytes, struct err *e);
int side_hear(struct side *s, int from, enum tp_stream stream, void *p, size_t bytes, struct err *e);
bool side_is_step(const struct order *o);
int side_steps(const struct side *s, int n);             /* how many of the first n tasks are steps */
/* This rank is at something that may take long, in no step: nobody finds fault with it. doing NULL: it is back. */
void side_elsewhere(struct side *s, enum fate_phase phase, const char *doing);
/* The checkpoint at the head of the tasks: begins it and removes it, once the last one is written. 0: not yet; 1; 74 as
 * of save_await. */
int side_checkpoint(struct side *s, struct order *o, struct err *e);
/* The roll-back at the head of the tasks, when all before it is done here: removes it. Returns when every rank has read
 * the checkpoint. Where one finds it damaged the state is none on all, and *damaged of rank 0 says why. */
int side_rollback(struct side *s, struct err *damaged, struct err *e);
/* To whoever watches: in the step of that order, NULL: in none; and whom the rank waits for. */
void side_says(struct side *s, const struct order *o, int waits_for);
/* Lets the executor read ahead for tasks that it does not know yet. */
int side_prefetch(struct side *s, struct err *e);
/* Runs the step at the head of the tasks and removes it. What its probe reports is sent to rank 0, or added there. */
int side_step(struct side *s, struct report *r, struct err *e);
/* values.c. The values of a step that has just run: sent to rank 0, or kept there. */
int side_values_say(struct side *s, const struct order *o, struct err *e);
/* Rank 0: those of the oldest open result, which all ranks have reported, go to who wants them. */
int side_values_take(struct side *s, const struct lead *l, struct err *e);
void side_values_open(struct side *s);
void side_values_free(struct side *s);
/* lead.c. Takes a report. 70 if it was not expected. */
int lead_report(struct side *s, const struct report *r, struct err *e);
/* lead.c, follow.c. side_fail of rank 0, and of the others. */
void lead_fail(struct side *s, struct err *e);
void follow_fail(struct side *s, struct err *e);
#endif
