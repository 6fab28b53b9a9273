/* What the suites share. */
#ifndef TESTS_SURE_H
#define TESTS_SURE_H
#include "config.h"
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef SANITIZED /* sanitizers look at each way through the code, not at each combination */
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

#define N_OF(a) ((int)(sizeof (a) / sizeof *(a)))

/* Check's assertions note every success, and the suite's process reads all notes of a test back in time that grows with
 * the square of their number. For loops over many values: nothing is noted but a failure. */
#define sure(condition, ...) do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)

/* A test case, each of whose tests has so many seconds: more than it ever needs on a busy machine under a sanitizer. */
static inline TCase *suite_case(const char *name, int seconds)
{
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, seconds);
    return t;
}

/* The end of a suite's main: runs these test cases and says how it went. CK_NOFORK where OpenMP may run: its threads do
 * not survive a fork; otherwise CK_FORK. */
#define suite_run(name, fork, ...) suite_run_all(name, fork, (TCase *[]){__VA_ARGS__, NULL})
static inline int suite_run_all(const char *name, enum fork_status fork, TCase *const *t)
{
    Suite *s = suite_create(name);
    for (; *t; t++) suite_add_tcase(s, *t);
    SRunner *r = srunner_create(s);
    if (fork == CK_NOFORK) srunner_set_fork_status(r, fork);   /* otherwise CK_FORK of the environment decides */
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Numbers that look random, the same everywhere. */
static inline uint32_t next_random(uint32_t *x) { *x = *x * 1664525u + 1013904223u; return *x >> 8; }
#endif
