/* How a run ends before its end: the abort word that the executor looks at between kernels, signals, and the first
 * failure with its text.
 *
 * One per process (signals are). doom_set: any thread; the handler of SIGTERM and SIGINT only sets the word. */
#ifndef DAEMON_RUN_DOOM_H
#define DAEMON_RUN_DOOM_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

atomic_int *doom_word(void);                              /* 0, or the exit code */
uint64_t doom_since(void);                                /* when it was set first (clock_ns), 0: it was not */
/* SIGTERM and SIGINT abort: a process that has not ended patience_ms after one is ended by a thread that does nothing
 * else, with 75 and the line (log_error). Once, first of all. */
void doom_signals(int patience_ms);
/* Of a run: SIGHUP, SIGUSR1, SIGUSR2 and SIGPIPE are ignored. What only prints ends with its reader or terminal. */
void doom_ignore(void);
/* Of a run; of its scheduler, which writes the metrics' last line. */
enum { DOOM_PATIENCE_MS = 300, DOOM_LOOP_MS = 220 };
/* What goes on, for the line: "planning"; NULL: a step. A constant text. */
void doom_doing(const char *what);
/* This process is a launcher's. Open MPI 5.0's leaves its ranks running when it is killed: they end as by SIGTERM
 * then. */
void doom_launched(void);
/* from now on SIGTERM ends this process: it has nothing left to do */
void doom_let_kill(void);
/* Remembers the first failure and sets the word. A failure with a cause wins over "stopped". */
void doom_set(int code, const char *text);
/* The failure to report: what was set, or the signal that came. False: nothing happened. */
bool doom_get(struct err *e);
#endif
