/* What rank 0's loop knows about checkpoints: when one is due by the clock, how good the last evaluation was, what came
 * of those that were written. Thread: the loop's. */
#ifndef TRAIN_CKPT_POLICY_H
#define TRAIN_CKPT_POLICY_H
#include "report/metrics.h"
#include "report/prometheus.h"
#include "cluster/queue.h"
#include "train/ckpt_writer.h"

struct ckpt_policy {
    const struct job *job;
    const struct conf *conf;                              /* values that may change while running: now */
    /* who is told of each checkpoint that was written or could not be (code, text); set by the loop */
    struct metrics *metrics; struct prometheus *prometheus;
    void (*told)(void *ctx, uint64_t step, int code, const char *text); void *ctx;
    struct save *save;
    struct queue *done;                                   /* struct save_done, from the writer's thread */
    struct scores scores;
    uint64_t since;                                       /* when the last one was ordered */
    int writing; bool slow;                               /* on their way; it was said that this takes long */
    int failures;                                         /* in a row */
    struct err last;                                      /* of the last one; code 0: it was written */
    uint64_t step, at;                                    /* of the newest that is on disk; 0: none; since when */
    struct { const char *key; uint64_t step; double value; } score;   /* of the last evaluation; key NULL: none */
    bool any; double best;                                /* by checkpoint.best, of those on disk */
    struct ckpt_best so_far;                              /* of all evaluations */
    uint64_t lost;                                        /* of what step none could be written; the loop clears it */
};
/* from: the checkpoint from which the run goes on, NULL: none. best: NULL, or the value of the best one on disk. */
void ckpt_policy_begin(struct ckpt_policy *k, const struct job *j, struct save *save, const struct ckpt *from,
                       const double *best);
bool ckpt_policy_due(const struct ckpt_policy *k);        /* by checkpoint.every_seconds */
void ckpt_policy_ordered(struct ckpt_policy *k);
void ckpt_policy_revoked(struct ckpt_policy *k);          /* that order was taken back */
void ckpt_policy_tick(struct ckpt_policy *k);             /* now and then: tells of a disk that is slow */
/* Notes an evaluation. Returns whether it is better by checkpoint.best than all that are on disk; a score that is not
 * finite never is. */
bool ckpt_policy_scored(struct ckpt_policy *k, uint64_t step, const struct sums *s);
/* of the last evaluation */
static inline double ckpt_policy_last(const struct ckpt_policy *k) { return k->score.value; }
/* Have train.patience evaluations come since the best one? */
bool ckpt_policy_enough(const struct ckpt_policy *k);
/* The run has gone back to a checkpoint, which says what was the best then; NULL: it cannot be read. */
void ckpt_policy_back(struct ckpt_policy *k, const struct ckpt_best *was);
/* All up to this checkpoint's step is in the metrics: it may be committed. skipped: as in save_note. */
void ckpt_policy_release(struct ckpt_policy *k, const struct order *o, uint64_t skipped);
/* It must not be: the run goes back to an earlier one. */
void ckpt_policy_forgo(struct ckpt_policy *k, const struct order *o);
/* Tells of what has been written. 74 after three failures in a row, unless the run ends anyway (ends): then nothing
 * is won by it, and its weights would be lost. */
int ckpt_policy_take(struct ckpt_policy *k, bool ends, struct err *e);
void ckpt_policy_end(struct ckpt_policy *k);
#endif
