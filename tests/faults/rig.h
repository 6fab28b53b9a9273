/* One checkpoint as two ranks write it, in files alone: what the daemon does with the same functions, without a network
 * to train. */
#ifndef FAULTS_RIG_H
#define FAULTS_RIG_H
#include "ckpt/checkpoint.h"

enum { RIG_FILES = 2 };                                  /* of a rank: weights and optimizer */
/* Rank `rank`'s files of a checkpoint, written into its folder. */
int rig_files_write(const struct out_folder *f, int rank, uint64_t step, struct ckpt_file out[RIG_FILES],
                    struct err *e);
/* The folder of checkpoints below a run directory, made if it is not there. */
int rig_checkpoints(int run, struct err *e);
/* What rank 0 does: begins, calls `others` (which says when rank 1's files are there, in out), commits, and removes all
 * older ones. said: is told "begin STEP" and "committed STEP"; may be NULL. */
struct rig_save {
    int dir; uint64_t step;
    int (*begun)(void *ctx, const struct out_folder *f, struct err *e);
    int (*others)(void *ctx, const struct out_folder *f, uint64_t step, struct ckpt_file out[RIG_FILES],
                  struct err *e);
    void (*said)(const char *text);
    void *ctx;
};
int rig_save(const struct rig_save *s, struct err *e);
/* The same by one process. */
int rig_save_alone(int dir, uint64_t step, struct err *e);
/* The newest valid checkpoint, 0 if there is none. -1 and e: one that has its name is not whole, or the folder cannot
 * be read. */
int rig_newest(int dir, uint64_t *step, struct err *e);

#endif
