/* The early end of a run: the abort word that the executor looks at between kernels, signals, and the first failure
 * with its text.
 *
 * One per process, as signals are. doom_set: any thread; the handler of SIGTERM and SIGINT only sets the word. */
#ifndef DAEMON_RUN_DOOM_H
#define DAEMON_RUN_DOOM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

atomic_int *doom_word(void);                              /* the abort word: 0 or an exit code */
uint64_t doom_since(void);                                /* when the word was first set (clock_ns); 0: it is not */
/* Installs handlers for SIGTERM and SIGINT, which set the word, and a thread that prints the error line and exits with
 * 75 if the process has not ended patience_ms later. Called once, before anything else. */
void doom_signals(int patience_ms);
/* For a run: ignores SIGHUP, SIGUSR1, SIGUSR2 and SIGPIPE. Modes that only print do end with their reader or
 * terminal. */
void doom_ignore(void);
/* The patience of a run, and of its scheduler, which writes the last line of the metrics. */
enum { DOOM_PATIENCE_MS = 300, DOOM_LOOP_MS = 220 };
/* What is going on, for the error line: a constant text such as "planning"; NULL: a step. */
void doom_doing(const char *what);
/* Says that this process has a launcher. Open MPI 5.0's leaves its ranks running when it is killed; then they end as by
 * SIGTERM. */
void doom_launched(void);
/* Lets SIGTERM end this process from now on, because it has nothing left to do. */
void doom_let_kill(void);
/* Remembers the first failure and sets the word. A failure with a cause wins over "stopped". */
void doom_set(int code, const char *text);
/* Gets the failure to report: the first one, or the signal that came. False: there is none. */
bool doom_get(struct err *e);
#endif
