/* The course of a run: which order comes next. A small state machine without clock, thread or MPI; rank 0's loop turns
 * it.
 *
 *   train [--first--> dump gradients] --every N steps--> evaluate [--> judge] --> train ...
 *   train, evaluate or judge --when one is due--> checkpoint --> train ...
 *   --last step or stop--> [evaluate] [--> checkpoint] --> save --> stop
 *   any of these but the last two --step was not finite--> fault --checkpoint is known--> rollback --> fault
 *   fault --ranks have read it--> train ... (or, where it was damaged, --> rollback to an older one)
 *
 * judge waits until the loop has said whether an evaluation was the best so far (checkpoint.best). */
#ifndef DAEMON_RUN_COURSE_H
#define DAEMON_RUN_COURSE_H
#include <stddef.h>
#include "ckpt/checkpoint.h"
#include "exec/exec.h"
#include "daemon/run/rates.h"
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
enum course_phase { COURSE_TRAIN, COURSE_DUMP, COURSE_EVALUATE, COURSE_JUDGE, COURSE_CHECKPOINT, COURSE_FAULT,
                    COURSE_ROLLBACK, COURSE_SAVE, COURSE_STOP, COURSE_END };
/* How a run is stopped: with its weights, as at its end; with a checkpoint before; or with a checkpoint only, from
 * which --resume goes on. */
enum course_stop { STOP_WEIGHTS, STOP_CHECKPOINT, STOP_RESUMABLE };
/* Up to which step it is known what came of each, and how many of those updated nothing. */
struct known { uint64_t step, skipped; };
struct course {
    const struct job *job;
    const struct conf *conf;                              /* values that may change while running: now */
    const struct rates *rates;                            /* which of them held for which step; NULL: always these */
    const struct known *known;                            /* NULL: no step is ever skipped */
    enum course_phase phase;
    uint64_t step, steps, position, test_position, epoch;
    uint64_t part;                                        /* orders of the running evaluation so far */
    bool stopping; enum course_stop how;
    bool wanted;                                          /* a checkpoint, at the next step border */
    uint64_t saved;                                       /* the step of the last one that was ordered, and not lost */
    bool evaluate_due;                                    /* of this step, and not all of it is ordered */
};
/* from: NULL, or the checkpoint from which the run goes on. */
void course_begin(struct course *c, const struct job *j, const struct ckpt *from);
/* Fills in the next order. False: there are no more. */
bool course_next(struct course *c, struct task *t);
/* Ends the course: no further step or evaluation. One that is to be judged yet may still be the best one so far. */
void course_stop(struct course *c, enum course_stop how);
/* The step of the checkpoint that is on its way, or else of the last one; 0: none. */
uint64_t course_saves_step(const struct course *c);
/* A checkpoint of the state after the last step that was ordered. False: there is nothing new to write. */
bool course_checkpoint(struct course *c);
/* The one of that step could not be written: it may be asked for again. */
void course_unsaved(struct course *c, uint64_t step);
/* The evaluation is done; best: a checkpoint of it is wanted; enough: the run ends with this step (train.patience). */
void course_judged(struct course *c, bool best, bool enough);
/* The same of the checkpoint from which a run would go on. */
void course_enough(struct course *c);
/* No orders until course_back, which follows: what was ordered behind a certain step is given up. */
void course_fault(struct course *c);
/* Then the order to go back to the checkpoint of a step. Samples before `position` are not used again. It may be given
 * again, for an older one, until course_arrived: the ranks have read it. */
void course_back(struct course *c, uint64_t step, uint64_t position);
void course_arrived(struct course *c);
/* train.nonfinite = rollback */
bool course_rolls_back(const struct conf *c);
/* Does the run write checkpoints by itself? */
bool course_saves(const struct conf *c);
/* The settings of a step: what has been reloaded counts from the step on that was named, also where steps are done
 * again. */
const struct conf *course_conf(const struct course *c, uint64_t step);
/* Learning rate of the next step, which has that number (from 1), by train.schedule, of what was set or of
 * train.learning_rate. skips: so many of the steps before it are skipped that are not known yet. */
double course_rate(const struct course *c, uint64_t step, uint64_t skips);
/* The warm-up is at least as long as the run, so that the rate never reaches what it rises to. */
bool course_only_warms(const struct job *j);
uint64_t course_samples(const struct job *j, uint64_t position);   /* that steps have had up to there */
size_t task_bytes(const struct job *j);
#endif
