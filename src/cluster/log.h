/* What people read: log lines on stderr and in RUN/mpstaged.log, the progress line, and the one error line of a job.
 * Any thread. Only the daemon prints, and of all ranks only rank 0. A line that stderr cannot take, because a terminal
 * is stopped or a pipe is full, is dropped there and counted; mpstaged.log has it. */
#ifndef CLUSTER_LOG_H
#define CLUSTER_LOG_H
#include <stdbool.h>
#include "base/err.h"

void log_quiet(bool quiet);                               /* set on ranks other than 0, which print nothing */
/* Lines on stderr begin with their priority, as systemd's journal reads it, and are not folded: "<3>" for the error
 * that ends a job, then by their level. */
void log_journal(bool journal);
/* Writes log lines also to mpstaged.log in that directory, behind what it has, which messages call `dir`. Lines that
 * cannot be written there are counted, and said when it can be written again. 71, 73. */
int log_file(int dirfd, const char *dir, struct err *e);
/* The next line or log_tick opens what has that name then, or makes it: who rotates logs renames the file and sends
 * SIGHUP. Any thread. */
void log_reopen(void);
void log_tick(void);                                      /* to be called now and then */
/* Columns to fold lines to on the screen; 0, as at the start: SCREEN_COLUMNS. Lines in mpstaged.log are not folded. */
void log_columns(int columns);
/* How much a line matters. Its level is the word and colon that it begins with ("warning: the disk is full"); lines
 * without one are LEVEL_INFO. The error that ends a job is LEVEL_ERROR and always said. */
enum log_level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTE, LEVEL_INFO, LEVEL_DEBUG, LOG_LEVELS };
const char *log_level_name(enum log_level level);         /* "error" ... */
int log_level_of(const char *name);                       /* the level of that name; -1: there is none */
enum log_level log_level_text(const char *line);          /* the level of a line by its first word */
/* Lines that matter less than this are left out, on the screen and in the log; at the start LEVEL_INFO, which leaves
 * out debug. */
void log_level_set(enum log_level level);
enum log_level log_level(void);
/* A line of that level: the text without the level's word. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* the level by the first word */
void log_lines(char *lines);                              /* logs each line of a text, which it changes */
/* Sets the progress line, which is rewritten in place as the last line on the screen. "" erases it; NULL leaves it
 * there and goes on below. After log_error it stays erased. */
void log_progress(const char *line);
/* Who hears of log_error's line, beside those who read it; called once, by any thread. At the start: nobody. */
typedef void log_hearer(int code, const char *text);
void log_failed(log_hearer *hear);
/* "mpstaged: TEXT", at most once in the life of the process. Returns code. */
int log_error(int code, const char *text);
#endif
