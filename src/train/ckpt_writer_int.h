/* Shared by ckpt_writer.c (the threads, and the interface), ckpt_shard.c (the files of a rank) and ckpt_commit.c (what
 * rank 0 adds). */
#ifndef TRAIN_CKPT_WRITER_INT_H
#define TRAIN_CKPT_WRITER_INT_H
#include <pthread.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/out.h"
#include "train/ckpt_writer.h"
#include "train/weights.h"

enum { SAVE_MODEL, SAVE_OPTIMIZER, SAVE_FILES };
extern const enum weights_what save_file_what[SAVE_FILES];
extern const char *const save_file_word[SAVE_FILES];

struct save {
    struct save_request q;
    struct save_lead lead;
    struct exec_hold hold;
    atomic_bool busy, said;
    bool started;                                         /* thread must be joined */
    pthread_t thread;
    struct order o;
    struct exec_past past;                                /* up to that step */
    uint64_t began, moved, moved_at;                      /* moved: of hold, at the last change that save_await saw */
    struct err unprepared; uint32_t serial;               /* rank 0: from save_prepare */
    struct weights_rows rows[SAVE_FILES];                      /* that this rank owns */
    char **staging;                                        /* [row], see staging_make; NULL: no copy */
    struct saved mine;
    /* rank 0; guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VEC(struct saved) heard;                           /* also for the next order: other ranks do not wait for rank 0 */
    const struct ckpt *head;                              /* the settings for the manifest */
    VEC(struct ckpt *) heads;                             /* from save_head */
    bool released, forgone;
    char score[64], best[64]; double value;               /* from save_note; "": none */
    int64_t keep; uint64_t skipped;
    struct ckpt_best so_far;
};

static inline int save_ranks(const struct save *s) { return job_world(s->q.job); }

/* ---- ckpt_shard.c ---- */
/* The name of a rank's file. Only ranks with rows of that kind have one; the number counts these files, from 1. */
void save_file_name(const struct save *s, int rank, int file, char name[64]);
/* Opens the folder of all checkpoints and sets its name, also if opening fails. Rank 0 uses its open run directory, so
 * it changes nothing in another directory that has taken its name. -1: e. */
int save_folder_open(const struct save *s, struct text *shown, struct err *e);
/* On the writer's thread: writes this rank's files, and clears hold when all state has been read. */
int ckpt_shard_write(struct save *s, struct err *e);

/* ---- ckpt_commit.c; rank 0, on the writer's thread ---- */
/* Commits what all ranks have written; the checkpoint counts when this returns 0. part: [rank]; bytes: of all files
 * except the manifest. */
int ckpt_commit(struct save *s, int dir, const char *shown, const struct saved *part, uint64_t *bytes, struct err *e);
/* Removes this run's checkpoints that checkpoint.keep does not cover. Leaves checkpoints of later steps: nothing is
 * known about them, except that they were damaged when the run resumed. */
int save_old_remove(const struct save *s, int dir, const char *shown, struct err *e);
#endif
