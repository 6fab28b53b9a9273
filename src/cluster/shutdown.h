/* How this process ends: its state in the table of shutdown_table.h, the failure, the phase of the process; and the
 * abort code, an atomic word that the executor checks between kernels. Signals arrive here: those that end the run and
 * those that request something. base/deadline.h has all deadlines of the end.
 *
 * One per process, as signals are. Any thread, except shutdown_begin; handlers only set words. */
#ifndef CLUSTER_SHUTDOWN_H
#define CLUSTER_SHUTDOWN_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "cluster/failure.h"
#include "cluster/shutdown_table.h"

/* Installs handlers for SIGTERM and SIGINT, which set the abort code. Starts the shutdown thread. It asks the scheduler
 * to end the job when the state's deadline is over (ON_LATE), and ends the process at the second one (ON_OVERDUE).
 * runs: this process trains; other modes end at once. That thread also runs the handlers; the caller and all threads
 * that it makes later block these signals. Called once, before anything else. */
void shutdown_begin(bool runs);
/* The program returns from main: signals have no effect any more, unless one has ended the run. Libraries that are
 * unloaded may give SIGHUP back its first effect, as UCX does, and the status would become 129. */
void shutdown_over(void);
/* For a run: ignores SIGHUP, SIGUSR1, SIGUSR2 and SIGPIPE. Modes that only print do end with their reader or
 * terminal. */
void shutdown_ignore(void);
/* Declares that this process has a launcher. Open MPI 5.0's launcher leaves its ranks running when it is killed. The
 * ranks then end with the status of a lost device, within the time that SIGTERM takes. */
void shutdown_launched(void);
/* From now on SIGTERM kills this process, because it has nothing left to do; unless its ranks are threads. */
void shutdown_let_kill(void);

/* ---- the failure ------------------------------------------------------------------------------------------------- */
atomic_int *abort_code(void);                             /* the abort code: 0 or an exit status */
/* Ends the run because of this rank's failure; FAILURE_NOBODY: of no rank's. Adds what the rank is doing, and its host
 * where that may be the cause. The first cause counts; it replaces a stop and a doubt. */
void abort_request(int rank, int code, const char *text);
/* Rank 0 failed with 69, which may be a consequence of another rank's failure. Does not set the abort code: that is due
 * when rank 0 has listened for the cause. */
void abort_doubt(const char *text);
/* The same as abort_request for a failure that another process reports. */
void abort_report(const struct failure *f);
/* For the heartbeat thread and ranks that rank 0 tells: takes ON_FOUND, ON_ALONE, ON_TOLD or ON_CAUSE. Returns what is
 * left to do after the failure was stored: DO_SPREAD, DO_LEAD, or nothing. */
enum shutdown_action abort_event(enum shutdown_event on, const struct failure *f);
/* Gets the failure to report: the first one, or the signal that came. False: there is none. */
bool abort_failure(struct failure *f);
/* The executor of a rank leaves its work because of a failure. Returns DO_TELL, DO_ANSWER, or nothing to do. */
enum shutdown_action shutdown_leave(void);
struct shutdown_times shutdown_now(void);                 /* the deadlines of the present state */

/* ---- the end ----------------------------------------------------------------------------------------------------- */
/* Prints the failure's line, writes RUN/why.json, ends the job and exits with the failure's status. The only way to
 * end a process after a failure; the second thread that calls it waits for the first. */
_Noreturn void shutdown_end(void);
/* Sets how the job ends after that: end ends or informs the other processes. It may return. NULL: this process is all.
 * self: other processes got the same signal and end by themselves. */
void shutdown_end_by(void (*end)(void *ctx, const struct failure *f, bool self), void *ctx);
/* The run directory, for why.json. Ranks that have no such folder write none. */
void shutdown_run(const char *dir);

/* The step of the newest checkpoint of a run that trains; 0: none. The line about a signal names it. SHUTDOWN_UNNAMED:
 * the failure names it. */
#define SHUTDOWN_UNNAMED UINT64_MAX
void shutdown_saved(uint64_t step);

/* ---- the phase --------------------------------------------------------------------------------------------------- */
enum shutdown_phase { SHUTDOWN_START, SHUTDOWN_STEP, SHUTDOWN_EVALUATION, SHUTDOWN_END };
/* doing: what the error line names as running, a constant text such as "planning"; NULL: the phase's default. */
void shutdown_phase(enum shutdown_phase p, const char *doing);
enum shutdown_phase shutdown_phase_now(void);
const char *shutdown_doing(void);                         /* "planning"; NULL in a step */
bool shutdown_elsewhere(void);                            /* neither in nor between steps and batches of evaluations */

/* ---- requests to the scheduler ----------------------------------------------------------------------------------- */
/* SIGUSR2, SIGUSR1, SIGHUP; DO_ASK of the table */
enum shutdown_ask { SHUTDOWN_ASK_CHECKPOINT = 1, SHUTDOWN_ASK_CHECKPOINT_AND_STOP = 2, SHUTDOWN_ASK_REOPEN_LOG = 4,
                    SHUTDOWN_ASK_END = 8 };
/* From now on this process handles those signals instead of ignoring them. Only for rank 0's process. */
void signals_open(void);
unsigned shutdown_asked(void);                            /* returns and clears the set of requests */
/* Sets a function that is called for each request, by signal handlers, too: wake must be async-signal-safe, as
 * uv_async_send is. Set once; shutdown_asked returns earlier requests. NULL: no call runs or begins after this
 * returns. */
void shutdown_wake(void (*wake)(void *ctx), void *ctx);
#endif
