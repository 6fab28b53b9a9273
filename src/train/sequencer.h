/* The state machine that yields the next order of a run. It has no clock, thread or MPI; rank 0's loop drives it.
 *
 *   train [--first--> dump gradients] --every N steps--> evaluate [--> check] --> train ...
 *   train, evaluate or check --when one is due--> checkpoint --> train ...
 *   --last step or stop--> [evaluate] [--> checkpoint] --> save --> stop
 *   after an evaluation, or instead: interim (generate.every_steps) --all prompts are done--> checkpoint, train ...
 *   generate --all prompts are done, or stop--> stop
 *   any of these but the last two --step was not finite--> fault --checkpoint is known--> rollback --> fault
 *   fault --ranks have read it--> train ... (or, if it was damaged, --> rollback to an older one)
 *
 * check waits until the loop has reported whether an evaluation was the best so far (checkpoint.best). */
#ifndef TRAIN_SEQUENCER_H
#define TRAIN_SEQUENCER_H
#include <stddef.h>
#include "ckpt/checkpoint.h"
#include "report/result.h"
#include "train/live_settings.h"
#include "job/job.h"

/* An order, and what rank 0 stores with it until all reports have come; then max_batch sample ids. */
struct task {
    uint64_t epoch;                                       /* 1-based */
    bool last;                                            /* the last order of an evaluation */
    /* the order and the ids go to the other ranks as one message */
    struct order o;
    int64_t id[];
};
_Static_assert(offsetof(struct task, id) == offsetof(struct task, o) + sizeof(struct order),
               "an order and its ids are one message");
enum sequencer_phase {
    SEQUENCER_TRAIN, SEQUENCER_DUMP, SEQUENCER_EVALUATE, SEQUENCER_GENERATE, SEQUENCER_AWAIT_SCORE,
    SEQUENCER_INTERIM, SEQUENCER_CHECKPOINT, SEQUENCER_FAULT, SEQUENCER_ROLLBACK, SEQUENCER_SAVE, SEQUENCER_STOP,
    SEQUENCER_END
};
/* How a run stops: with its weights, as at its end; with a checkpoint before that; or only with a checkpoint, from
 * which --resume continues. */
enum sequencer_stop { STOP_WEIGHTS, STOP_CHECKPOINT, STOP_RESUMABLE };
/* step: the last step whose outcome is known. skipped: how many steps up to it had no update. */
struct known { uint64_t step, skipped; };
struct generation;                                       /* train/generation.h */
struct sequencer {
    const struct job *job;
    struct generation *generation;                       /* of run.generate, or between steps; NULL: neither */
    const struct conf *conf;                              /* may change during the run; the current values */
    const struct live_settings *rates;                   /* which of them apply to which step; NULL: always conf */
    const struct known *known;                            /* NULL: no step is ever skipped */
    enum sequencer_phase phase;
    uint64_t step, steps, position, test_position, epoch;
    uint64_t part;                                        /* orders of the running evaluation so far */
    bool stopping; enum sequencer_stop how;
    bool wanted;                                          /* a checkpoint is requested, at the next step border */
    uint64_t saved;                                       /* the step of the last one that was ordered and not lost */
    bool evaluate_due, interim_due;                       /* after this step; not yet ordered in full */
};
/* from: NULL, or the checkpoint from which the run continues. */
void sequencer_begin(struct sequencer *c, const struct job *j, const struct ckpt *from);
/* Fills in the next order. False: there is none now. */
bool sequencer_next(struct sequencer *c, struct task *t);
/* Ends the sequence: no further step or evaluation. An evaluation that still has to be checked may still be the best so
 * far. */
void sequencer_stop(struct sequencer *c, enum sequencer_stop how);
/* The step of the checkpoint that is requested, or else of the last one; 0: none. */
uint64_t sequencer_saves_step(const struct sequencer *c);
/* Requests a checkpoint of the state after the last step that was ordered. False: there is nothing new to write. */
bool sequencer_checkpoint(struct sequencer *c);
/* The checkpoint of that step could not be written, so it may be requested again. */
void sequencer_unsaved(struct sequencer *c, uint64_t step);
/* The evaluation was checked. best: it gets a checkpoint; enough: the run ends with this step (train.patience). */
void sequencer_scored(struct sequencer *c, bool best, bool enough);
/* Ends a run at the checkpoint from which it continues, because train.patience was already reached. */
void sequencer_enough(struct sequencer *c);
/* Stops orders until sequencer_back, which must follow. Orders after a certain step are given up. */
void sequencer_fault(struct sequencer *c);
/* Yields the order to return to the checkpoint of a step. Samples before `position` are not used again. May be called
 * again for an older checkpoint until sequencer_restored, which reports that the ranks have read it. */
void sequencer_back(struct sequencer *c, uint64_t step, uint64_t position);
void sequencer_restored(struct sequencer *c);
/* The settings of a step. A reload applies from its step on, also if steps run again. */
const struct conf *sequencer_conf(const struct sequencer *c, uint64_t step);
/* Learning rate of the next step, whose number is `step` (from 1), by train.schedule, from the rate that was set or
 * train.learning_rate. skips: how many steps before it are skipped beyond those known. */
double sequencer_rate(const struct sequencer *c, uint64_t step, uint64_t skips);
/* Whether the warm-up is at least as long as the run, so that the rate never reaches its full value. */
bool sequencer_only_warms(const struct job *j);
uint64_t sequencer_samples(const struct job *j, uint64_t position); /* that steps have used up to that position */
size_t task_bytes(const struct job *j);
#endif
