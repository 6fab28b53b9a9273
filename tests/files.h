/* Files of a test: its own directory under /tmp, small files in it, and checks of an error. Uses Check's assertions. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H
#include <check.h>
#include <stddef.h>
#include "base/err.h"

/* Runs the tests that `add` adds, in a new directory, which it then removes with all contents. Returns main's
 * result. */
int scratch_suite(const char *name, void (*add)(TCase *t));
/* Fixtures of a test case: run for each of its tests. */
void scratch_enter(void);
void scratch_leave(void);
/* Writes a file of n bytes; PUT: from a string constant without its closing NUL. */
void put(const char *path, const void *p, size_t n);
#define PUT(path, text) put(path, text, sizeof text - 1)
void put_text(const char *path, const char *s);
/* Checks that the error has this code, and that its text, one line, has these words: see says(). */
void expect(const struct err *e, int code, const char *words);

#endif
