/* What people read: log lines on stderr and in RUN/mpstaged.log, the progress line, and the one error line of a job.
 * Any thread. Only the daemon prints, and of all ranks only rank 0. A line that stderr does not take, because a
 * terminal is stopped or nobody reads a pipe, is left out there and counted; mpstaged.log has it. */
#ifndef DAEMON_REPORT_LOG_H
#define DAEMON_REPORT_LOG_H
#include <stdbool.h>
#include "base/err.h"

void log_quiet(bool quiet);                               /* other ranks say nothing */
/* From now on also to a new mpstaged.log in that directory, which is called `dir`. 73. */
int log_file(int dirfd, const char *dir, struct err *e);
/* On the screen lines are folded to these columns, in mpstaged.log they are whole. 0, and before: to SCREEN_COLUMNS. */
void log_columns(int columns);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_lines(char *lines);                              /* each of them; changes the text */
/* The progress line: the last one on the screen, rewritten in place and moved down by log lines. "" erases it, NULL
 * forgets it where it stands. After log_error it stays erased. */
void log_progress(const char *line);
/* "mpstaged: TEXT", at most once in the life of the process. Returns code. */
int log_error(int code, const char *text);
#endif
