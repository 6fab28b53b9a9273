/* Writing checkpoints while training goes on. At a step border every rank starts a thread that writes the state which
 * it owns, straight from the memory that only the next optimizer action changes (which waits: exec_request.hold), or
 * from a copy where the state is on a device. Rank 0's thread waits for all of them and commits.
 *
 *   rank 0, executor   save_prepare (the folder), then the order to all
 *   every rank         save_begin, at the step border; save_said on other ranks, save_heard on rank 0
 *   rank 0, loop       save_release, when what happened up to the step is in the metrics
 *   rank 0, writer     index, manifest, commit, old ones go; request.done
 *
 * Thread: as said; save_hold and save_busy are for any. */
#ifndef TRAIN_CKPT_WRITER_H
#define TRAIN_CKPT_WRITER_H
#include <stdatomic.h>
#include "ckpt/checkpoint.h"
#include "exec/exec.h"
#include "job/job.h"

/* What came of it: code 0, or why there is none; unwanted: it was forgone. */
struct save_done {
    uint64_t step, bytes, ns; int code; bool unwanted; char name[CKPT_NAME], text[600];
    char score[64]; double value;                         /* of the evaluation, as in its manifest; "": none */
};
/* A rank's part, as it tells rank 0. serial: of the order, since a step may be saved more than once. */
struct saved { uint32_t serial; int32_t rank, code, n; struct ckpt_file file[2]; char text[600]; };

struct save_request {
    const struct job *job;
    struct exec *exec;
    int rank;
    const atomic_int *stop;                               /* set: writers give up */
    const char *dir;                                      /* the run directory */
    const struct ckpt *head;                              /* rank 0: settings, numerics, seed; borrowed */
    uint64_t patience_ns;                                 /* of save_await; 0: DEADLINE_COMMIT */
};
struct save;
struct save *save_new(void);
const struct exec_hold *save_hold(const struct save *s);  /* for exec_request.hold */
void save_open(struct save *s, const struct save_request *q);
/* Rank 0, before the first order. metrics: its file, which is synced before a checkpoint counts. dir: the run
 * directory, open. done: called by the writer's thread, or save_begin. */
struct save_lead {
    int metrics, dir;
    void (*done)(void *ctx, const struct save_done *d);
    void *ctx;
};
void save_lead(struct save *s, const struct save_lead *l);
/* From when this returns, done is called no more: what a writer still concludes is told to nobody. */
void save_leave(struct save *s);
/* Rank 0: gives the order its serial number and makes the folder into which the ranks write. A failure is remembered
 * for save_begin. */
void save_prepare(struct save *s, struct order *o);
int save_prepared(const struct save *s);                  /* 0, or the exit code of that failure */
/* Is the last one still being written? Then save_begin must wait. */
bool save_busy(const struct save *s);
/* For the executor, while it waits for that: 1: it is written, 0: not yet. 74 where nothing has moved for so long that
 * it never will be: on rank 0 also because another rank's part does not come. */
int save_await(struct save *s, struct err *e);
void save_begin(struct save *s, const struct order *o);
/* Other ranks: true once when the part is written, or could not be; then it is to be sent to rank 0. */
bool save_said(struct save *s, struct saved *m);
void save_heard(struct save *s, const struct saved *m);
/* Rank 0: lets the checkpoint of this step be committed. score: of the evaluation after it, NULL: there was none;
 * skipped: steps in a row up to it that updated nothing; so_far: the best of all evaluations up to it. Then `keep`
 * checkpoints stay, and the best one by the score of that name (NULL: none). Copied. */
struct save_note { const char *score; double value; int64_t keep; const char *best; uint64_t skipped;
                   struct ckpt_best so_far; };
void save_release(struct save *s, const struct save_note *n);
/* Rank 0, instead: the checkpoint of this step is not wanted any more. */
void save_forgo(struct save *s);
/* Rank 0: what manifests say of the settings from now on; owned. And what they say. */
void save_head(struct save *s, struct ckpt *head);
const struct ckpt *save_headed(const struct save *s);
/* The host memory that a copy of a rank's state takes from the first checkpoint on, also where one is only asked for;
 * 0: none, because it is written straight from where the state is. */
uint64_t save_staging_bytes(const struct job *j, int rank);
void save_free(struct save *s);                           /* waits for the thread */
#endif
