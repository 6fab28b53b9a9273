/* What the parts of save share: ckpt_writer.c (the threads, and what others call), save_part.c (the files of a rank)
 * and save_whole.c (what rank 0 adds to them). */
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
    bool started;                                         /* thread is to be joined */
    pthread_t thread;
    struct order o;
    struct exec_past past;                                /* up to that step */
    uint64_t began, moved, moved_at;                      /* moved: of hold, when save_await saw it change */
    struct err unprepared; uint32_t serial;               /* rank 0: of save_prepare */
    struct weights_rows rows[SAVE_FILES];                      /* that this rank owns */
    char **mirror;                                        /* [row], see mirror_make; NULL: none is kept */
    struct saved mine;
    /* rank 0; guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VEC(struct saved) heard;                              /* also of the next one: ranks do not wait for rank 0 */
    const struct ckpt *head;                              /* what the manifest says of the settings */
    VEC(struct ckpt *) heads;                             /* that save_head gave */
    bool released, forgone;
    char score[64], best[64]; double value;               /* of save_note; "": none */
    int64_t keep; uint64_t skipped;
    struct ckpt_best so_far;
};

static inline int save_ranks(const struct save *s) { return job_world(s->q.job); }

/* ---- save_part.c ---- */
/* The file of a rank that has such rows: files are numbered among those that are written, from 1. */
void save_file_name(const struct save *s, int rank, int file, char name[64]);
/* The folder of all checkpoints, open, with its name, also where this fails. Rank 0 has the run directory open, and
 * makes and removes nothing in one that has got its name since. -1: e. */
int save_folder_open(const struct save *s, struct text *shown, struct err *e);
/* On the writer's thread: writes this rank's files, and clears hold when all of the state is read. */
int ckpt_shard_write(struct save *s, struct err *e);

/* ---- save_whole.c; rank 0, on the writer's thread ---- */
/* Commits what all ranks have written: the checkpoint counts when this returns 0. part: [rank]; bytes: of all files but
 * the manifest. */
int ckpt_commit(struct save *s, int dir, const char *shown, const struct saved *part, uint64_t *bytes, struct err *e);
/* Removes what checkpoint.keep does not keep of the run's own. Later steps than this one, of which nothing is known but
 * that they were not sound when the run went on, are left alone. */
int save_old_remove(const struct save *s, int dir, const char *shown, struct err *e);
#endif
