/* The sequence of a run: which order comes next. A small state machine without clock, thread or MPI; rank 0's loop
 * turns it.
 *
 *   train [--first--> dump gradients] --every N steps--> evaluate [--> check] --> train ...
 *   train, evaluate or check --when one is due--> checkpoint --> train ...
 *   --last step or stop--> [evaluate] [--> checkpoint] --> save --> stop
 *   any of these but the last two --step was not finite--> fault --checkpoint is known--> rollback --> fault
 *   fault --ranks have read it--> train ... (or, where it was damaged, --> rollback to an older one)
 *
 * check waits until the loop has said whether an evaluation was the best so far (checkpoint.best). */
#ifndef TRAIN_SEQUENCER_H
#define TRAIN_SEQUENCER_H
#include <stddef.h>
#include "ckpt/checkpoint.h"
#include "report/result.h"
#include "train/lr_overrides.h"
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
enum sequencer_phase { SEQUENCER_TRAIN, SEQUENCER_DUMP, SEQUENCER_EVALUATE, SEQUENCER_JUDGE, SEQUENCER_CHECKPOINT,
                      SEQUENCER_FAULT,
                    SEQUENCER_ROLLBACK, SEQUENCER_SAVE, SEQUENCER_STOP, SEQUENCER_END };
/* How a run is stopped: with its weights, as at its end; with a checkpoint before; or with a checkpoint only, from
 * which --resume goes on. */
enum sequencer_stop { STOP_WEIGHTS, STOP_CHECKPOINT, STOP_RESUMABLE };
/* Up to which step it is known what came of each, and how many of those updated nothing. */
struct known { uint64_t step, skipped; };
struct sequencer {
    const struct job *job;
    const struct conf *conf;                              /* values that may change while running: now */
    const struct rates *rates;                            /* which of them held for which step; NULL: always these */
    const struct known *known;                            /* NULL: no step is ever skipped */
    enum sequencer_phase phase;
    uint64_t step, steps, position, test_position, epoch;
    uint64_t part;                                        /* orders of the running evaluation so far */
    bool stopping; enum sequencer_stop how;
    bool wanted;                                          /* a checkpoint, at the next step border */
    uint64_t saved;                                       /* the step of the last one that was ordered, and not lost */
    bool evaluate_due;                                    /* of this step, and not all of it is ordered */
};
/* from: NULL, or the checkpoint from which the run goes on. */
void sequencer_begin(struct sequencer *c, const struct job *j, const struct ckpt *from);
/* Fills in the next order. False: there are no more. */
bool sequencer_next(struct sequencer *c, struct task *t);
/* Ends the sequence: no further step or evaluation. One that is to be checked yet may still be the best one so far. */
void sequencer_stop(struct sequencer *c, enum sequencer_stop how);
/* The step of the checkpoint that is on its way, or else of the last one; 0: none. */
uint64_t sequencer_saves_step(const struct sequencer *c);
/* A checkpoint of the state after the last step that was ordered. False: there is nothing new to write. */
bool sequencer_checkpoint(struct sequencer *c);
/* The one of that step could not be written: it may be asked for again. */
void sequencer_unsaved(struct sequencer *c, uint64_t step);
/* The evaluation is done; best: a checkpoint of it is wanted; enough: the run ends with this step (train.patience). */
void sequencer_judged(struct sequencer *c, bool best, bool enough);
/* The same of the checkpoint from which a run would go on. */
void sequencer_enough(struct sequencer *c);
/* No orders until sequencer_back, which follows: what was ordered behind a certain step is given up. */
void sequencer_fault(struct sequencer *c);
/* Then the order to go back to the checkpoint of a step. Samples before `position` are not used again. It may be given
 * again, for an older one, until sequencer_arrived: the ranks have read it. */
void sequencer_back(struct sequencer *c, uint64_t step, uint64_t position);
void sequencer_arrived(struct sequencer *c);
/* The settings of a step: what has been reloaded counts from the step on that was named, also where steps are done
 * again. */
const struct conf *sequencer_conf(const struct sequencer *c, uint64_t step);
/* Learning rate of the next step, which has that number (from 1), by train.schedule, of what was set or of
 * train.learning_rate. skips: so many of the steps before it are skipped that are not known yet. */
double sequencer_rate(const struct sequencer *c, uint64_t step, uint64_t skips);
/* The warm-up is at least as long as the run, so that the rate never reaches what it rises to. */
bool sequencer_only_warms(const struct job *j);
uint64_t sequencer_samples(const struct job *j, uint64_t position); /* that steps have had up to there */
size_t task_bytes(const struct job *j);
#endif
