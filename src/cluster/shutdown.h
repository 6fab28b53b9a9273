/* How this process ends: the first cause, its text and the rank that it is about; the phase of the process; and the
 * abort code, an atomic word that the executor checks between kernels. Signals arrive here: those that end the run and
 * those that request something. base/deadline.h has all deadlines of the end.
 *
 * One per process, as signals are. Any thread, except shutdown_begin; handlers only set words. */
#ifndef CLUSTER_SHUTDOWN_H
#define CLUSTER_SHUTDOWN_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* Installs handlers for SIGTERM and SIGINT, which set the abort code. Starts a thread that prints the error line and
 * ends the process if it has not ended in time: patience_ms after a signal or in the start of a run, otherwise
 * DEADLINE_PROCESS_FAIL. That thread also runs the handlers; the caller and all threads that it makes later block these
 * signals. Called once, before anything else. */
void shutdown_begin(int patience_ms);
/* For a run: ignores SIGHUP, SIGUSR1, SIGUSR2 and SIGPIPE. Modes that only print do end with their reader or
 * terminal. */
void shutdown_ignore(void);
/* Declares that this process has a launcher. Open MPI 5.0's launcher leaves its ranks running when it is killed. The
 * ranks then end with the status of a lost device, within the time that SIGTERM takes. */
void shutdown_launched(void);
/* From now on SIGTERM kills this process, because it has nothing left to do. */
void shutdown_let_kill(void);
/* Sets how any thread ends the whole job after the line was printed; `end` never returns. Default: _exit. */
void shutdown_end_by(void (*end)(void *ctx, int code), void *ctx);

/* ---- the cause --------------------------------------------------------------------------------------------------- */
struct cause { int code, who; char text[1000]; };         /* who: the rank that it is about; -1: none, or this one */
enum { SHUTDOWN_NOBODY = -1 };
atomic_int *abort_code(void);                             /* the abort code: 0 or an exit status */
uint64_t shutdown_since(void);                            /* when the abort code was first set (clock_ns); 0: not set */
/* Stores the first failure and sets the abort code. A failure with a cause wins over "stopped". */
void abort_set(int code, const char *text);
void abort_set_of(int who, int code, const char *text);
/* Gets the failure to report: the first one, or the signal that came. False: there is none. */
bool shutdown_get(struct err *e);
int shutdown_who(void);                                   /* the rank that this failure is about */
/* Prints the cause and ends the job. For other threads, when the executor's thread does not end it. */
_Noreturn void shutdown_end(void);

/* The step of the newest checkpoint of a run that trains; 0: none. The line about a signal names it. */
void shutdown_saved(uint64_t step);

/* ---- the phase --------------------------------------------------------------------------------------------------- */
enum shutdown_phase { SHUTDOWN_START, SHUTDOWN_STEP, SHUTDOWN_EVALUATION, SHUTDOWN_END };
/* doing: what the error line names as running, a constant text such as "planning"; NULL: the phase's default. */
void shutdown_phase(enum shutdown_phase p, const char *doing);
enum shutdown_phase shutdown_phase_now(void);
const char *shutdown_doing(void);                         /* "planning"; NULL in a step */
bool shutdown_elsewhere(void);                            /* neither in nor between steps and batches of evaluations */

/* ---- requests by signals ----------------------------------------------------------------------------------------- */
/* SIGUSR2, SIGUSR1, SIGHUP */
enum shutdown_ask { SHUTDOWN_ASK_CHECKPOINT = 1, SHUTDOWN_ASK_CHECKPOINT_AND_STOP = 2, SHUTDOWN_ASK_REOPEN_LOG = 4 };
/* From now on this process handles those signals instead of ignoring them. Only for rank 0's process. */
void signals_open(void);
unsigned shutdown_asked(void);                            /* returns and clears the set of requests */
/* Sets a function that the signal handler calls for each request: wake must be async-signal-safe, as uv_async_send is.
 * Set once; shutdown_asked returns earlier requests. NULL: no call runs or begins after this returns. */
void shutdown_wake(void (*wake)(void *ctx), void *ctx);
#endif
