/* Going on from a checkpoint: which one, whether it fits, and its weights. Collective: every rank's executor thread. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H
#include <stdbool.h>
#include "ckpt/checkpoint.h"
#include "conf/conf.h"
#include "train/lr_overrides.h"
#include "exec/exec.h"

struct setup;
struct resume {
    bool found;
    bool rate_anew;                                       /* rank 0: the configuration has another learning rate */
    struct ckpt from;                                     /* if found; on every rank */
    struct rates rates;                                   /* rank 0: what was set while the run went on before */
    struct ckpt now;                                      /* rank 0: what this run's checkpoints say of its settings */
    bool any; double best;                                /* rank 0: the best score on disk, by checkpoint.best */
    char *passed;                                         /* rank 0: what was passed over first, and why; NULL: none */
};
/* Rank 0, with the run directory open: fills in rates. 65, 73, 74. */
int resume_rates(struct setup *b, struct err *e);
/* With run.resume finds the newest sound checkpoint of the run directory. Each rank looks at its share of the files.
 * Damaged ones are named in the notes and passed over. 65 where there are checkpoints, but no sound one. 78 names a
 * setting that has changed so that bits would be others, unless run.resume is force; a newest one of another version;
 * weights without a checkpoint. */
int resume_find(struct setup *b, struct err *e);
/* Reads the state that this rank begins with: of what was found, or else of run.init_from. 65, 66. */
int resume_begin(struct setup *b, struct err *e);
/* Reads this rank's state from the checkpoint of that step, and looks at its share of the files as resume_find does:
 * where all ranks return 0 it is sound. ctx: struct setup. 65 if it is damaged or gone, 66, 74. */
int resume_back(void *ctx, uint64_t step, struct err *e);
void resume_free(struct resume *r);
/* The same settings, but those that may change while a run goes on are of a configuration that has been read again. The
 * caller owns it. Any thread. */
struct ckpt *resume_resettle(const struct ckpt *was, const struct conf *now);
#endif
