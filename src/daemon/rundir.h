/* The run directory: refused or locked before anything is created, made when every input was checked. Rank 0 only. */
#ifndef DAEMON_RUNDIR_H
#define DAEMON_RUNDIR_H
#include "conf/conf.h"
struct rundir { const char *path; int fd, lock; };         /* -1: not open */
/* Creates nothing. 75 names the process that uses the directory, 73 if it holds that result (a file's name) and
 * overwrite is not set. */
int rundir_check(struct rundir *d, const struct conf *c, const char *result, struct err *e);
/* After rundir_check: 73 if what is started from would be removed. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e);
/* run.trace and run.dump_gradients: can such a file be made, and is it none of the run's own? 73. */
int rundir_outputs(const struct conf *c, struct err *e);
/* Makes it where it is not there; removes nothing. 73. */
int rundir_enter(struct rundir *d, struct err *e);
/* Makes it with its parents, locks it, removes what an earlier run left; but of a run that will write weights, the
 * earlier ones are renamed weights.safetensors.old. 73, also for results that came since the check. */
int rundir_make(struct rundir *d, const struct conf *c, struct err *e);
/* After rundir_make: are there such, which this run will remove when it has written its own? */
bool rundir_keeps(const struct rundir *d, const struct conf *c);
/* The new weights are written: removes the earlier ones. 74. */
int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e);
void rundir_close(struct rundir *d);
#endif
