/* The run directory. It is checked and locked before anything is created, and made when every input has been checked.
 * Rank 0 only. */
#ifndef REPORT_RUNDIR_H
#define REPORT_RUNDIR_H
#include "base/out.h"
#include "conf/conf.h"

#define LR_OVERRIDES_FILE "rates.jsonl"                   /* what has been set while running, in the run directory */
struct rundir {
    const char *path;
    int fd, lock;                                          /* -1: not open */
    /* length of the part of path that names the first directory that we made; 0: we made none */
    size_t made;
    bool adds;                                             /* to the metrics and log of a run that came to nothing */
    bool locked_first, cleared;                            /* we made the lock; an earlier run's files are removed */
    bool set_aside;                                        /* an earlier run's weights have been renamed */
};
#define RUNDIR_NONE {.fd = -1, .lock = -1}
enum rundir_use { RUNDIR_TRAIN, RUNDIR_EVALUATE, RUNDIR_PROFILE };
/* 73 if a run could neither use nor make it: no permission, a name that is too long, a link or device under the name of
 * one of our files. Creates nothing and locks nothing. */
int rundir_look(const struct conf *c, enum rundir_use use, struct err *e);
/* The same, and locks the directory if it exists. 75 names the process that uses it; 73 if it holds results of such a
 * use and overwrite is not set. */
int rundir_check(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e);
/* After rundir_check: 73 if the run would remove the weights that it starts from. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e);
/* Whether runs make a file of this name in their directory. */
bool rundir_owns(const char *name);
/* Makes the directory if it does not exist; removes nothing. 73. */
int rundir_enter(struct rundir *d, struct err *e);
/* Makes the directory and its parents, locks it and removes what an earlier run left. If this run will write weights,
 * the earlier ones are renamed weights.safetensors.old. 73, also for results that have appeared since the check. */
int rundir_make(struct rundir *d, const struct conf *c, struct err *e);
/* When the files of this run have their names, and those of an earlier one are gone: so it is after a loss of power,
 * too. 74. */
int rundir_sync(const struct rundir *d, struct err *e);
/* For a run that could not begin: removes what was made since rundir_check, nothing of an earlier run. */
void rundir_undo(struct rundir *d);
/* After rundir_make: whether earlier weights are left, which rundir_settle will remove. */
bool rundir_keeps(const struct rundir *d, const struct conf *c);
/* When the new weights are written: removes the earlier ones. 74. */
int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e);
/* Whether the directory that is open as fd still has that name, by which other ranks go. 73. */
int rundir_named(int fd, const char *path, struct err *e);
void rundir_close(struct rundir *d);
#endif
