/* Who is told of a run: each is one file and one name in REPORTERS (Makefile.am), in that order. Rank 0's scheduler
 * thread; before it begins and after it has ended, the executor's.
 *
 * This folder: what a run writes about its steps: metrics, TensorBoard, Prometheus, progress, traces, predictions, plan
 * accuracy, slow layers; and the names of its files (rundir.c, output_paths.c). On rank 0, except trace.c and
 * warmup_costs.c, in which all ranks take part. See docs/design/report.md. */
#ifndef REPORT_REPORTER_H
#define REPORT_REPORTER_H
#include "base/out.h"
#include "ckpt/checkpoint.h"
#include "cluster/terminal.h"
#include "report/event.h"
#include "report/rundir.h"

struct reporters;
/* from: NULL, or the checkpoint from which the run continues. gpu: ids (be_ops.unit) of the devices on rank 0's host,
 * each once. */
struct report_run {
    const struct job *job; const struct rundir *dir; const struct ckpt *from; const struct terminal *screen;
    bool one_process; struct reporters *all; int n_gpus; const char (*gpu)[BE_ID];
};
/* All functions but on may be NULL. */
struct reporter {
    const char *name;
    /* Its errors end the run; otherwise it is no longer told. So of each that tells others, whose errors it returns. */
    bool required;
    /* Before anything is created: 78, or 73 where it could not begin. d->fd is -1 where no directory is looked at. */
    int (*check)(const struct rundir *d, const struct conf *c, struct err *e);
    /* NULL in *self: not wanted. Without open it has no memory, and is told everything. */
    int (*open)(const struct report_run *q, void **self, struct err *e);
    int (*on)(void *self, const struct event *ev, struct err *e);
    const struct out_records *(*file)(const void *self);  /* to be on disk before a checkpoint counts */
    void (*undo)(void *self, int dirfd);                  /* the run could not begin: removes what open made */
    void (*close)(void *self);
};
extern const struct reporter *const reporter_list[];      /* ends with NULL */

int reporters_check(const struct reporter *const *list, const struct rundir *d, const struct conf *c, struct err *e);
/* After a failure too, *out must be closed. */
int reporters_open(const struct reporter *const *list, const struct report_run *q, struct reporters **out,
                   struct err *e);
/* Tells all. An error of a required one ends this, and is returned. A reporter may tell others what it has found. */
int reporters_tell(struct reporters *all, const struct event *ev, struct err *e);
void *reporters_find(const struct reporters *all, const char *name);   /* what it opened, or NULL */
int reporters_sync(const struct reporters *all, struct err *e);        /* any thread: 74 */
void reporters_undo(const struct reporters *all, int dirfd);
void reporters_close(struct reporters *all);              /* NULL may be closed */
#endif
