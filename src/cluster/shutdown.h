/* The fate of this process: why it ends (the first cause, its text and who found it), in which phase it is, and the
 * abort word, which the executor looks at between kernels. Signals come in here, those that end the run and those that
 * ask for something. How long who waits for whom at the end is in base/deadline.h.
 *
 * One per process, as signals are. All but shutdown_begin: any thread; handlers only set words. */
#ifndef CLUSTER_SHUTDOWN_H
#define CLUSTER_SHUTDOWN_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* Installs handlers for SIGTERM and SIGINT, which set the word, and a thread that prints the error line and ends the
 * process if it has not ended some time later: patience_ms after a signal or in the start of a run, otherwise
 * DEADLINE_PROCESS_FAIL. That thread also runs the handlers; the caller and all threads that it makes from now on
 * block those signals. Called once, before anything else. */
void shutdown_begin(int patience_ms);
/* For a run: ignores SIGHUP, SIGUSR1, SIGUSR2 and SIGPIPE. Modes that only print do end with their reader or
 * terminal. */
void shutdown_ignore(void);
/* Says that this process has a launcher. Open MPI 5.0's leaves its ranks running when it is killed; then they end as if
 * something had been lost, within the time that SIGTERM takes. */
void shutdown_launched(void);
/* Lets SIGTERM end this process from now on, because it has nothing left to do. */
void shutdown_let_kill(void);
/* How to end the whole job from any thread, after the line was printed; never returns. Until it is set: _exit. */
void shutdown_end_by(void (*end)(void *ctx, int code), void *ctx);

/* ---- the cause --------------------------------------------------------------------------------------------------- */
struct cause { int code, who; char text[1000]; };         /* who: the rank that it is about; -1: none, or this one */
enum { SHUTDOWN_NOBODY = -1 };
atomic_int *abort_code(void);                             /* the abort word: 0 or an exit code */
uint64_t shutdown_since(void);                            /* when the word was first set (clock_ns); 0: it is not */
/* Remembers the first failure and sets the word. A failure with a cause wins over "stopped". */
void abort_set(int code, const char *text);
void abort_set_of(int who, int code, const char *text);
/* Gets the failure to report: the first one, or the signal that came. False: there is none. */
bool shutdown_get(struct err *e);
int shutdown_who(void);                                   /* of that failure */
/* Prints the cause and ends the job. For threads other than the executor's, when that one does not. */
_Noreturn void shutdown_end(void);

/* Of a run that trains: the step of its newest checkpoint, 0: it has none. What a signal's line says of it. */
void shutdown_saved(uint64_t step);

/* ---- the phase --------------------------------------------------------------------------------------------------- */
enum shutdown_phase { SHUTDOWN_START, SHUTDOWN_STEP, SHUTDOWN_EVALUATION, SHUTDOWN_END };
/* doing: what the error line says goes on, a constant text such as "planning"; NULL: the phase's own. */
void shutdown_phase(enum shutdown_phase p, const char *doing);
enum shutdown_phase shutdown_phase_now(void);
const char *shutdown_doing(void);                         /* "planning"; NULL in a step */
bool shutdown_elsewhere(void);                            /* neither in nor between steps and batches of evaluations */

/* ---- what signals ask for ---------------------------------------------------------------------------------------- */
/* SIGUSR2, SIGUSR1, SIGHUP */
enum shutdown_ask { SHUTDOWN_ASK_CHECKPOINT = 1, SHUTDOWN_ASK_CHECKPOINT_AND_STOP = 2, SHUTDOWN_ASK_REOPEN_LOG = 4 };
/* From now on those signals are heard here, instead of ignored. Only rank 0's process does. */
void signals_open(void);
unsigned shutdown_asked(void);                            /* the set of what was asked for since the last call */
/* Called whenever something is asked for, in a signal handler: wake must be async-signal-safe, as uv_async_send is. Set
 * once; what was asked for before, shutdown_asked tells. NULL: nobody any more, from when this returns. */
void shutdown_wake(void (*wake)(void *ctx), void *ctx);
#endif
