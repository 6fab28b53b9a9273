/* The run directory. It is checked and locked before anything is created, and made after every input has been checked.
 * Rank 0 only. */
#ifndef REPORT_RUNDIR_H
#define REPORT_RUNDIR_H
#include "base/out.h"
#include "conf/conf.h"

#define LIVE_SETTINGS_FILE "rates.jsonl"                   /* settings changed during the run, in the run directory */
#define CLASS_FILE "classes.json"                          /* names of the classes that a run trained */
struct rundir {
    const char *path;
    int fd, lock;                                          /* -1: not open */
    /* length of the part of path that names the first directory that this run made; 0: it made none */
    size_t made;
    bool adds;                                         /* to metrics and log of a run without checkpoints and weights */
    bool locked_first, cleared;                         /* this run made the lock; an earlier run's files are removed */
    bool set_aside;                                        /* an earlier run's weights have been renamed */
};
#define RUNDIR_NONE {.fd = -1, .lock = -1}
enum rundir_use { RUNDIR_TRAIN, RUNDIR_EVALUATE, RUNDIR_PROFILE };
/* 73 if a run could neither use nor make the directory: no permission, a name that is too long, a link or device under
 * the name of a run's file. Creates nothing and locks nothing. */
int rundir_inspect(const struct conf *c, enum rundir_use use, struct err *e);
/* The same, and locks the directory if it exists. 75 names the process that uses it. 73 if it has results of such a use
 * and overwrite is not set. */
int rundir_check(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e);
/* After rundir_check: 73 if the run would remove the weights that it starts from. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e);
/* Whether runs make a file of this name in their directory. */
bool rundir_owns(const char *name);
/* Makes the directory if it does not exist; removes nothing. 73. */
int rundir_enter(struct rundir *d, struct err *e);
/* Makes the directory and its parents, locks it and removes the files of an earlier run. If this run will write
 * weights, earlier ones are renamed weights.safetensors.old. 73, also for results that have appeared since the
 * check. */
int rundir_make(struct rundir *d, const struct conf *c, struct err *e);
/* After the files of this run have their names and those of an earlier run are removed: makes this survive a loss of
 * power. 74. */
int rundir_sync(const struct rundir *d, struct err *e);
/* For a run that could not begin: removes what was made since rundir_check, nothing of an earlier run. */
void rundir_undo(struct rundir *d);
/* After rundir_make: whether there are earlier weights, which rundir_settle will remove. */
bool rundir_keeps(const struct rundir *d, const struct conf *c);
/* After the new weights were written: removes the earlier ones, and folders of them that this run does not leave. 73,
 * 74. */
int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e);
/* Checks that `path`, which other ranks use, still names the directory that is open as fd. 73. */
int rundir_named(int fd, const char *path, struct err *e);
void rundir_close(struct rundir *d);
#endif
