/* Shared by all suites. */
#ifndef TESTS_SURE_H
#define TESTS_SURE_H
#include "config.h"
#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef SANITIZED /* sanitizers need each code path, not each combination */
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

#define N_OF(a) ((int)(sizeof (a) / sizeof *(a)))

/* How many of their cases suites try. RIG_CASES=few in the environment: one of each kind, as check-quick does; =all, or
 * LONG, as check-long does: every case; otherwise enough that any two properties meet at least once. */
enum rig_cases { CASES_FEW, CASES_SOME, CASES_ALL };
static inline enum rig_cases rig_cases(void)
{
    const char *s = getenv("RIG_CASES");
    if (getenv("LONG") || (s && !strcmp(s, "all"))) return CASES_ALL;
    return s && !strcmp(s, "few") ? CASES_FEW : CASES_SOME;
}
static inline int cases_of(int few, int some, int all)
{
    return rig_cases() == CASES_FEW ? few : rig_cases() == CASES_SOME ? some : all;
}

/* Check's assertions record every success, and the suite's process reads a test's records in time that grows with the
 * square of their number. For loops over many values: records only a failure. */
#define sure(condition, ...) do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)

/* Whether a message has these words in this order. "|" separates them: keys, names, numbers, places, no prose. */
static inline bool says(const char *message, const char *words)
{
    while (message && *words) {
        char word[256];
        size_t n = strcspn(words, "|");
        sure(n < sizeof word, "a word of %zu bytes", n);
        memcpy(word, words, n);
        word[n] = '\0';
        message = strstr(message, word);
        if (message) message += n;
        words += n + (words[n] == '|');
    }
    return message != NULL;
}

/* A test case whose tests each get `seconds`: more than they need on a busy machine under a sanitizer. */
static inline TCase *suite_case(const char *name, int seconds)
{
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, seconds);
    return t;
}

/* Adds a loop test with _i up to `n`: every case for which `due` holds. */
#define suite_loop(t, test, n, due) do { \
    for (int i_ = 0; i_ < (n); i_++) if (due) tcase_add_loop_test(t, test, i_, i_ + 1); } while (0)
/* For loops whose _i is an outer property times `inner` plus an inner one: IN_TURN: each outer one with one inner one,
 * in turn. EVERY(n): every n-th. Except with FEW, they cover two properties; PAIRS covers three bits, any two of which
 * meet. */
#define IN_TURN(inner) (cases_of(i_ == 0, i_ % (inner) == i_ / (inner) % (inner), 1))
#define EVERY(n) (cases_of(i_ == 0, i_ % (n) == 0, 1))
#define PAIRS (cases_of(i_ == 0, (i_ ^ i_ >> 1 ^ i_ >> 2 ^ 1) & 1, 1))
/* Beside one of these, for what is slow under a sanitizer: there every n-th, in check-long all. */
#define SANITIZED_EVERY(n) (!IS_SANITIZED || cases_of(i_ == 0, i_ % (n) == 0, 1))

/* The end of a suite's main: runs these test cases and returns the exit status. CK_NOFORK if OpenMP may run: its
 * threads do not survive a fork; otherwise CK_FORK. */
#define suite_run(name, fork, ...) suite_run_all(name, fork, (TCase *[]){__VA_ARGS__, NULL})
static inline int suite_run_all(const char *name, enum fork_status fork, TCase *const *t)
{
    Suite *s = suite_create(name);
    for (; *t; t++) suite_add_tcase(s, *t);
    SRunner *r = srunner_create(s);
    if (fork == CK_NOFORK) srunner_set_fork_status(r, fork);   /* otherwise CK_FORK in the environment decides */
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Pseudo-random numbers, the same on every machine. */
static inline uint32_t next_random(uint32_t *x) { *x = *x * 1664525u + 1013904223u; return *x >> 8; }
#endif
