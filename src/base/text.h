/* A growing text buffer, for all text that is printed, hashed or compared. Not thread-safe. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* s is NUL-terminated once something was added; free with text_free */
struct text { char *s; size_t n, cap; };
void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *t, const void *p, size_t n);
void text_free(struct text *t);
bool text_ends(const char *s, const char *end);          /* whether s is longer than end, and ends with it */

/* Reads a whole regular text file (at most max bytes) into t, without a UTF-8 byte order mark. 66 if it does not exist,
 * 65 if it is too large or not text (base/file_kind.h), 74 if reading fails. Never waits for a pipe. The error text
 * starts with the path. */
int text_read_file(struct text *t, const char *path, size_t max, struct err *e);
/* The same, also for a pipe or a terminal, which can be read only once. 65 also for a pipe without a byte; /dev/null is
 * an empty text. */
int text_read_any(struct text *t, const char *path, size_t max, struct err *e);
/* The same for a regular file of any bytes, unchanged. */
int text_read_bytes(struct text *t, const char *path, size_t max, struct err *e);
/* Like text_read_file for an open file, from its beginning. path: for texts. */
int text_read_fd(struct text *t, int fd, const char *path, size_t max, struct err *e);

/* XXH3-128 of n bytes as 32 hex digits, in the order that xxh128sum prints. out has 33 bytes. */
void text_hash(const void *p, size_t n, char out[33]);

/* ---- for users: each of these returns buf ---- */
char *text_bytes(uint64_t bytes, char buf[32]);          /* "1.25 GiB" */
char *text_count(double n, char buf[32]);                /* "118.01 M" */
char *text_number(double x, char buf[32]);               /* four significant digits, no exponent: "21333" */
char *text_exact(double x, char buf[32]);                /* the fewest digits from 15 on that read back to x */
char *text_seconds(double seconds, char buf[32]);        /* "8.573 ms" */
/* Chooses seconds, milliseconds or microseconds: the largest unit that gives at least 1; UTF-8. */
struct text_unit { const char *name, *plural; double seconds; };
struct text_unit text_unit(double seconds);
/* Appends s, right-aligned in at least `width` columns; UTF-8. */
void text_right(struct text *t, int width, const char *s);

/* Copies untrusted s in a form that is safe on a terminal and in a log. Control characters (C0, C1, line and paragraph
 * separators, direction marks) and noncharacters become \x1b or \u{202e}, invalid UTF-8 bytes \xff. Writes at most
 * size - 1 bytes and omits trailing characters that do not fit. Allocates nothing. Returns buf. */
char *text_printable(const char *s, char *buf, size_t size);

/* ---- lines of a terminal; UTF-8 ---- */
/* The columns in the environment's COLUMNS, else of standard output's terminal, else 80. */
int text_output_columns(void);
int text_output_end(struct err *e);                     /* flushes standard output: 74 if it could not be written */
char *text_duration(uint64_t seconds, char buf[24]);    /* "1:02:03" */
int text_columns(const char *s, size_t n);               /* columns of n bytes */
/* Bytes of the first line of s in `columns` columns: up to its end, or to the space before the first word that does not
 * fit. A word longer than a line gets its own line. */
size_t text_line(const char *s, int columns);
/* Appends all lines of s, each folded with text_line; continuation lines begin with `indent` spaces. */
void text_fold(const char *s, int columns, int indent, struct text *out);

#endif
