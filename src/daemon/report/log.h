/* What people read: log lines on stderr and in RUN/mpstaged.log, the progress line, and the one error line of a job.
 * Any thread. Only the daemon prints, and of all ranks only rank 0. A line that stderr cannot take, because a terminal
 * is stopped or a pipe is full, is dropped there and counted; mpstaged.log has it. */
#ifndef DAEMON_REPORT_LOG_H
#define DAEMON_REPORT_LOG_H
#include <stdbool.h>
#include "base/err.h"

void log_quiet(bool quiet);                               /* set on ranks other than 0, which print nothing */
/* Writes log lines also to a new mpstaged.log in that directory, which messages call `dir`. 73. */
int log_file(int dirfd, const char *dir, struct err *e);
/* Columns to fold lines to on the screen; 0, as at the start: SCREEN_COLUMNS. Lines in mpstaged.log are not folded. */
void log_columns(int columns);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_lines(char *lines);                              /* logs each line of a text, which it changes */
/* Sets the progress line, which is rewritten in place as the last line on the screen. "" erases it; NULL leaves it
 * there and goes on below. After log_error it stays erased. */
void log_progress(const char *line);
/* "mpstaged: TEXT", at most once in the life of the process. Returns code. */
int log_error(int code, const char *text);
#endif
