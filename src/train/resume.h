/* Resumes from a checkpoint: which one, whether it fits, and its weights. Collective. Thread: every rank's executor. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H
#include <stdbool.h>
#include "ckpt/checkpoint.h"
#include "conf/conf.h"
#include "train/live_settings.h"
#include "exec/exec.h"

struct setup;
struct resume {
    bool found;
    bool rate_anew;                                       /* rank 0: the configuration has another learning rate */
    struct ckpt from;                                     /* if found; on every rank */
    struct live_settings rates;                          /* rank 0: changes that were set before */
    struct ckpt now;                                      /* rank 0: settings for this run's manifests */
    char base[33];                                        /* weights_base_digest; on every rank, from resume_begin on */
    bool any; double best;                                /* rank 0: the best score on disk, by checkpoint.best */
    char *passed;                               /* rank 0: the first checkpoint that was skipped, and why; NULL: none */
};
/* Rank 0, with the run directory open: fills in rates. 65, 73, 74. */
int resume_rates(struct setup *b, struct err *e);
/* Rank 0: fills in now. */
int resume_settings(struct setup *b, struct err *e);
/* With run.resume finds the newest valid checkpoint of the run directory. Each rank verifies its share of the files.
 * The notes name damaged checkpoints, which are skipped. 65: there are checkpoints, but no valid one. 78 names a
 * setting whose change would change bits, unless run.resume is force; also: the newest one is of another version, or
 * there are weights without a checkpoint. */
int resume_find(struct setup *b, struct err *e);
/* Reads the state that this rank begins with: from the checkpoint found, or else from run.init_from. With adapters also
 * checks that the base weights are those of the checkpoint, or of lora.init_from, and adds them to now. 65, 66, 75, 78.
 */
int resume_begin(struct setup *b, struct err *e);
/* Reads this rank's state from the checkpoint of that step, and verifies its share of the files as resume_find does. If
 * all ranks return 0, the checkpoint is valid. ctx: struct setup. 65 if it is damaged or missing, 66, 74. */
int resume_back(void *ctx, uint64_t step, struct err *e);
void resume_free(struct resume *r);
/* Copies the settings, and takes those that may change during a run from a configuration that was read again. The
 * caller owns the result. Any thread. */
struct ckpt *resume_resettle(const struct ckpt *was, const struct conf *now);
#endif
