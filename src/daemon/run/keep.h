/* What rank 0's loop knows about checkpoints: when one is due by the clock, how good the last evaluation was, what came
 * of those that were written. Thread: the loop's. */
#ifndef DAEMON_RUN_KEEP_H
#define DAEMON_RUN_KEEP_H
#include "daemon/report/metrics.h"
#include "daemon/report/tally.h"
#include "daemon/run/ring.h"
#include "daemon/run/save.h"
#include "daemon/talk/ctl.h"

struct keep {
    const struct job *job;
    const struct conf *conf;                              /* values that may change while running: now */
    struct metrics *metrics; struct tally *tally; struct ctl *ctl;   /* who is told; set by the loop */
    struct save *save;
    struct ring *done;                                    /* struct save_done, from the writer's thread */
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
void keep_begin(struct keep *k, const struct job *j, struct save *save, const struct ckpt *from, const double *best);
bool keep_due(const struct keep *k);                      /* by checkpoint.every_seconds */
void keep_ordered(struct keep *k);
void keep_revoked(struct keep *k);                        /* that order was taken back */
void keep_tick(struct keep *k);                           /* now and then: tells of a disk that is slow */
/* Notes an evaluation. Returns whether it is better by checkpoint.best than all that are on disk; a score that is not
 * finite never is. */
bool keep_scored(struct keep *k, uint64_t step, const struct sums *s);
static inline double keep_last(const struct keep *k) { return k->score.value; }   /* of the last evaluation */
/* Have train.patience evaluations come since the best one? */
bool keep_enough(const struct keep *k);
/* The run has gone back to a checkpoint, which says what was the best then; NULL: it cannot be read. */
void keep_back(struct keep *k, const struct ckpt_best *was);
/* All up to this checkpoint's step is in the metrics: it may be committed. skipped: as in save_note. */
void keep_release(struct keep *k, const struct order *o, uint64_t skipped);
/* It must not be: the run goes back to an earlier one. */
void keep_forgo(struct keep *k, const struct order *o);
/* Tells of what has been written. 74 after three failures in a row, unless the run ends anyway (ends): then nothing
 * is won by it, and its weights would be lost. */
int keep_take(struct keep *k, bool ends, struct err *e);
void keep_end(struct keep *k);
#endif
