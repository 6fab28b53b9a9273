/* Files of a test: a directory of its own under /tmp, small files in it, and what an error must say. Uses Check's
 * assertions. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H
#include <check.h>
#include <stddef.h>
#include "base/err.h"

/* Runs the tests that `add` adds, in a new directory that is removed with all that is in it. What main returns. */
int scratch_suite(const char *name, void (*add)(TCase *t));
/* Fixtures of a test case: the same for each of its tests. */
void scratch_enter(void);
void scratch_leave(void);
/* Writes a file of n bytes; PUT: of a string constant without its closing NUL. */
void put(const char *path, const void *p, size_t n);
#define PUT(path, text) put(path, text, sizeof text - 1)
void put_text(const char *path, const char *s);
/* The error has this code, and its text, which is one line, this part. */
void expect(const struct err *e, int code, const char *part);

#endif
