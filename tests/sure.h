/* What the suites share. */
#ifndef TESTS_SURE_H
#define TESTS_SURE_H
#include "config.h"
#include <check.h>
#include <stdlib.h>

#ifdef SANITIZED /* sanitizers look at each way through the code, not at each combination */
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

/* Check's assertions note every success, and the suite's process reads all notes of a test back in time that grows with
 * the square of their number. For loops over many values: nothing is noted but a failure. */
#define sure(condition, ...) do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)

/* The end of a suite's main: runs it and says how it went. CK_NOFORK where OpenMP may run: its threads do not survive a
 * fork; otherwise CK_FORK. */
static inline int suite_run(Suite *s, enum fork_status fork)
{
    SRunner *r = srunner_create(s);
    if (fork == CK_NOFORK) srunner_set_fork_status(r, fork);   /* otherwise CK_FORK of the environment decides */
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif
