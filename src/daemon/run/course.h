/* The course of a run: which order comes next. A small state machine without clock, thread or MPI; rank 0's loop turns
 * it.
 *
 *   train [--first--> dump gradients] --every N steps--> evaluate --> train ... --last step or stop--> [evaluate] -->
 * save --> stop
 */
#ifndef DAEMON_RUN_COURSE_H
#define DAEMON_RUN_COURSE_H
#include <stddef.h>
#include "exec/exec.h"
#include "job/job.h"

/* An order with what rank 0 remembers about it until all reports are in, followed by max_batch sample ids. */
struct task {
    uint64_t epoch;                                       /* 1-based */
    bool last;                                            /* the last order of an evaluation */
    /* the order and the ids are sent to the other ranks as one message */
    struct order o;
    int64_t id[];
};
_Static_assert(offsetof(struct task, id) == offsetof(struct task, o) + sizeof(struct order),
               "an order and its ids are one message");
enum course_phase { COURSE_TRAIN, COURSE_DUMP, COURSE_EVALUATE, COURSE_SAVE, COURSE_STOP, COURSE_END };
struct course {
    const struct job *job;
    enum course_phase phase;
    uint64_t step, steps, position, test_position, epoch;
    uint64_t part;                                        /* orders of the running evaluation so far */
    bool stopping;
};
void course_begin(struct course *c, const struct job *j);
/* Fills in the next order. False: there are no more. */
bool course_next(struct course *c, struct task *t);
/* Ends the course: no further step or evaluation; weights are saved. */
void course_stop(struct course *c);
/* Learning rate of a step (1-based) by train.schedule. */
double course_rate(const struct conf *c, uint64_t step);
size_t task_bytes(const struct job *j);
#endif
