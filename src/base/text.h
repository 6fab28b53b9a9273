/* A growing text buffer, for everything that is printed, hashed or compared. Not thread-safe. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* s is NUL-terminated once something was added; free with text_free */
struct text { char *s; size_t n, cap; };
void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_bytes(struct text *t, const void *p, size_t n);
void text_free(struct text *t);

/* Reads a whole file (at most max bytes) into t. 66 if it does not exist, 65 if it is too large or a directory, 74 if
 * reading fails; the error text starts with the path. */
int text_read_file(struct text *t, const char *path, size_t max, struct err *e);

/* Writes t as the file's whole contents. 73 if it cannot be created, 74 if writing fails; the error text starts with
 * the path. */
int text_write_file(const struct text *t, const char *path, struct err *e);
/* The same by way of a file beside it: what is there is whole, whenever this ends. Not for devices and pipes. */
int text_replace_file(const struct text *t, const char *path, struct err *e);

/* XXH3-128 of some bytes as 32 hex digits, in the order xxh128sum prints. out has 33 bytes. */
void text_hash(const void *p, size_t n, char out[33]);

/* Formats bytes for people: "1.25 GiB". Returns buf. */
char *text_bytes(uint64_t bytes, char buf[32]);

#endif
