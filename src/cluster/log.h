/* What people read: log lines on stderr and in RUN/mpstaged.log, the progress line, and the one error line of a job.
 * Any thread. Only the daemon prints, and only its rank 0. If stderr cannot take a line, because a terminal is stopped
 * or a pipe is full, the line is dropped there and counted; mpstaged.log still gets it. */
#ifndef CLUSTER_LOG_H
#define CLUSTER_LOG_H
#include <stdbool.h>
#include "base/err.h"

void log_quiet(bool quiet);                               /* set on ranks other than 0, which print nothing */
bool log_is_quiet(void);
/* Prefixes lines on stderr with their priority, as systemd's journal reads it, and does not fold them: "<3>" for the
 * error that ends a job, then by level. */
void log_journal(bool journal);
/* Also appends log lines to mpstaged.log in that directory, which messages call `dir`. Lines that cannot be written
 * there are counted; their number is logged when writing works again. 71, 73. */
int log_file(int dirfd, const char *dir, struct err *e);
/* The next line or log_tick opens the file of that name, or creates it. A log rotator renames the file and sends
 * SIGHUP. Any thread. */
void log_reopen(void);
void log_tick(void);                                      /* must be called now and then */
/* Columns to fold lines to on the screen; 0, the initial value: SCREEN_COLUMNS. Lines in mpstaged.log are not
 * folded. */
void log_columns(int columns);
/* The severity of a line. A line's level is the word before its first colon ("warning: the disk is full"); lines
 * without one are LEVEL_INFO. The error that ends a job is LEVEL_ERROR and always printed. */
enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTE, LEVEL_INFO, LEVEL_DEBUG, LOG_LEVELS };
const char *log_level_name(enum log_level level);         /* "error" ... */
int log_level_of(const char *name);                       /* the level of that name; -1: there is none */
enum log_level log_level_text(const char *line);          /* the level of a line by its first word */
/* Leaves out less severe lines, on the screen and in the log. The initial value, LEVEL_INFO, leaves out debug. */
void log_level_set(enum log_level level);
enum log_level log_level(void);
/* Logs a line of that level. The text does not include the level's word. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* the first word gives the level */
void log_lines(char *lines);                              /* logs each line of a text, which it changes */
/* Sets the progress line, which is rewritten in place as the last line on the screen. "" erases it. NULL leaves it on
 * the screen and continues below it. After log_error it stays erased. */
void log_progress(const char *line);
/* Sets the function that log_error calls once with its text, on any thread. Initially none. */
typedef void log_listener(int code, const char *text);
void log_failed(log_listener *hear);
/* Prints "mpstaged: TEXT", at most once in the life of the process. Returns code. */
int log_error(int code, const char *text);
#endif
