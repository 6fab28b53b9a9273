/* Writes checkpoints during training. At a step border every rank starts a thread that writes the state that the rank
 * owns. The thread writes directly from the memory that only the next optimizer action changes; that action waits
 * (exec_request.hold). State on a device is written from a copy, and so is a CPU's state of at most 4 MiB
 * (save_staging_bytes). Rank 0's thread waits for all ranks and commits.
 *
 *   rank 0, executor   save_prepare (the folder), then the order to all
 *   every rank         save_begin, at the step border; save_report on other ranks, save_reported on rank 0
 *   rank 0, loop       save_release, when the metrics contain everything up to the step
 *   rank 0, writer     index, manifest, commit, removal of old ones; save_lead.done
 *
 * Thread: as listed; save_hold and save_busy: any. */
#ifndef TRAIN_CKPT_WRITER_H
#define TRAIN_CKPT_WRITER_H
#include <stdatomic.h>
#include "ckpt/checkpoint.h"
#include "exec/exec.h"
#include "job/job.h"

/* The outcome: e.code 0, or why there is no checkpoint; unwanted: save_forgo cancelled it. */
struct save_done {
    uint64_t step, bytes, ns; bool unwanted; char name[CKPT_NAME]; struct err e;
    char score[64]; double value;                         /* of the evaluation, as in the manifest; "": none */
};
/* A rank's part, as sent to rank 0. serial: of the order, since a step may be saved more than once. */
struct saved { uint32_t serial; int32_t rank, n; struct ckpt_file file[2]; struct err e; };

struct save_request {
    const struct job *job;
    struct exec *exec;
    int rank;
    const atomic_int *stop;                               /* nonzero: writers give up */
    const char *dir;                                      /* the run directory */
    const struct ckpt *head;                              /* rank 0: settings, numerics, seed; borrowed */
    const char *base;                                     /* of adapters, as in struct st_body; borrowed */
    uint64_t patience_ns;                                 /* for save_await; 0: DEADLINE_COMMIT */
};
struct save;
struct save *save_new(void);
const struct exec_hold *save_hold(const struct save *s);  /* for exec_request.hold */
void save_open(struct save *s, const struct save_request *q);
/* Rank 0, before the first order. reporters: their files are synced before a checkpoint counts. dir: the open run
 * directory. done: called by the writer's thread or by save_begin. */
struct save_lead {
    const struct reporters *reporters; int dir;
    void (*done)(void *ctx, const struct save_done *d);
    void *ctx;
};
void save_lead(struct save *s, const struct save_lead *l);
/* After this returns, done is not called again; outcomes of a running writer are dropped. */
void save_leave(struct save *s);
/* Rank 0: sets the order's serial number and makes the folder that the ranks write to. Stores a failure for
 * save_begin. */
void save_prepare(struct save *s, struct order *o);
int save_prepared(const struct save *s);                  /* 0, or the exit status of that failure */
/* Whether the last one is still being written. save_begin must wait for that. */
bool save_busy(const struct save *s);
/* For the executor while it waits for that. 1: written; 0: not yet; 74: no progress for so long that it will never be
 * written. On rank 0 that is also so if another rank's part does not come. */
int save_await(struct save *s, struct err *e);
void save_begin(struct save *s, const struct order *o);
/* Other ranks: true once, when the part was written or failed. The caller then sends it to rank 0. */
bool save_report(struct save *s, struct saved *m);
void save_reported(struct save *s, const struct saved *m);
/* Rank 0: allows the commit of this step's checkpoint. score: of the evaluation after it; NULL: none. skipped:
 * consecutive steps up to it without an update. so_far: the best of all evaluations up to it. keep: how many
 * checkpoints stay. best: the checkpoint with the best score of that name also stays; NULL: none. Copied. */
struct save_note { const char *score; double value; int64_t keep; const char *best; uint64_t skipped;
                   struct ckpt_best so_far; };
void save_release(struct save *s, const struct save_note *n);
/* Rank 0, instead of save_release: discards the checkpoint of this step. */
void save_forgo(struct save *s);
/* Rank 0: sets the settings that manifests record from now on; owned. save_headed returns them. */
void save_head(struct save *s, struct ckpt *head);
const struct ckpt *save_headed(const struct save *s);
const char *save_base(const struct save *s);              /* of the request */
/* Host memory that a copy of a rank's state takes from the first checkpoint on, also from one on request; 0: none,
 * because state is written from where it is. */
uint64_t save_staging_bytes(const struct job *j, int rank);
void save_free(struct save *s);                           /* waits for the thread */
#endif
