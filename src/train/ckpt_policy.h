/* What rank 0's loop knows about checkpoints: whether one is due by the clock, the score of the last evaluation, the
 * outcome of checkpoints that were written. Thread: the scheduler's. */
#ifndef TRAIN_CKPT_POLICY_H
#define TRAIN_CKPT_POLICY_H
#include "report/reporter.h"
#include "cluster/queue.h"
#include "train/ckpt_writer.h"

struct ckpt_policy {
    const struct job *job;
    const struct conf *conf;                              /* may change during the run; the current values */
    /* told: called for each checkpoint that was written or could not be written (code, text); set by the loop */
    struct reporters *reporters;
    void (*on_saved)(void *ctx, uint64_t step, int code, const char *text); void *ctx;
    struct save *save;
    struct queue *done;                                   /* struct save_done, from the writer's thread */
    struct scores scores;
    uint64_t since;                                       /* when the last one was ordered */
    int writing; bool slow;                               /* number being written; the slowness was reported */
    int failures;                                         /* in a row */
    struct err last;                                      /* why the last one failed; code 0: it was written */
    uint64_t step, at;                                    /* of the newest one on disk; 0: none; when it got there */
    struct { const char *key; uint64_t step; double value; } score;   /* of the last evaluation; key NULL: none */
    bool any; double best;                                /* the best one on disk by checkpoint.best */
    struct ckpt_best so_far;                              /* best of all evaluations */
    uint64_t lost;                              /* the step whose checkpoint could not be written; the loop clears it */
};
/* from: the checkpoint from which the run continues; NULL: none. best: the score of the best one on disk, or NULL. */
void ckpt_policy_begin(struct ckpt_policy *k, const struct job *j, struct save *save, const struct ckpt *from,
                       const double *best);
bool ckpt_policy_due(const struct ckpt_policy *k);        /* by checkpoint.every_seconds */
void ckpt_policy_ordered(struct ckpt_policy *k);
void ckpt_policy_revoked(struct ckpt_policy *k);          /* that order was revoked */
void ckpt_policy_tick(struct ckpt_policy *k);             /* now and then: reports a slow disk */
/* Takes the scores of an evaluation. Returns whether it is better by checkpoint.best than all on disk. A score that is
 * not finite never is. */
bool ckpt_policy_scored(struct ckpt_policy *k, uint64_t step, const struct sums *s);
/* of the last evaluation */
static inline double ckpt_policy_last(const struct ckpt_policy *k) { return k->score.value; }
/* Whether train.patience evaluations have come since the best one. */
bool ckpt_policy_enough(const struct ckpt_policy *k);
/* The run has returned to a checkpoint. was: the best evaluation up to it, from its manifest; NULL: it cannot be
 * read. */
void ckpt_policy_back(struct ckpt_policy *k, const struct ckpt_best *was);
/* The metrics contain everything up to this checkpoint's step, so it may be committed. skipped: as in save_note. */
void ckpt_policy_release(struct ckpt_policy *k, const struct order *o, uint64_t skipped);
/* Cancels the commit, because the run returns to an earlier checkpoint. */
void ckpt_policy_forgo(struct ckpt_policy *k, const struct order *o);
/* Reports the checkpoints that have been written. 74 after three failures in a row, unless the run ends anyway (ends).
 * An error would then gain nothing and lose the weights. */
int ckpt_policy_take(struct ckpt_policy *k, bool ends, struct err *e);
void ckpt_policy_end(struct ckpt_policy *k);
#endif
