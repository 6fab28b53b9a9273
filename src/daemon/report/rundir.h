/* The run directory: refused or locked before anything is created, made when every input was checked. Rank 0 only. */
#ifndef DAEMON_REPORT_RUNDIR_H
#define DAEMON_REPORT_RUNDIR_H
#include "base/out.h"
#include "conf/conf.h"
struct rundir {
    const char *path;
    int fd, lock;                                          /* -1: not open */
    /* bytes of path up to the first directory that we made; 0: none */
    size_t made;
    bool locked_first, cleared;                            /* we made the lock; what an earlier run left is gone */
    bool set_aside;                                        /* but its weights, which have another name now */
};
#define RUNDIR_NONE {.fd = -1, .lock = -1}
enum rundir_use { RUNDIR_TRAIN, RUNDIR_EVALUATE, RUNDIR_PROFILE };
/* Could a run use it, or could it be made? 73: no right to, a name that is too long, a file of ours that is a symbolic
 * link, device or the like. Creates nothing and locks nothing. */
int rundir_look(const struct conf *c, enum rundir_use use, struct err *e);
/* The same, and locks it if it is there. 75 names the process that uses it, 73 if it holds results of such a use and
 * overwrite is not set. */
int rundir_check(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e);
/* After rundir_check: 73 if what is started from would be removed. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e);
/* Is this the name of a file that runs make in their directory? */
bool rundir_owns(const char *name);
/* Makes it where it is not there; removes nothing. 73. */
int rundir_enter(struct rundir *d, struct err *e);
/* Makes it with its parents, locks it, removes what an earlier run left; but of a run that will write weights, the
 * earlier ones are renamed weights.safetensors.old. 73, also for results that came since the check. */
int rundir_make(struct rundir *d, const struct conf *c, struct err *e);
/* The run could not begin: removes what was made since. Nothing of an earlier run that is still there. */
void rundir_undo(struct rundir *d);
/* After rundir_make: are there such, which this run will remove when it has written its own? */
bool rundir_keeps(const struct rundir *d, const struct conf *c);
/* The new weights are written: removes the earlier ones. 74. */
int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e);
void rundir_close(struct rundir *d);
#endif
