/* The environment is changed while other threads read it. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/environ.h"
#include "sure.h"

enum { CHANGES = 400, READERS = 3 };

START_TEST(a_default_is_set_once)
{
    unsetenv("MPSTAGED_TEST");
    environ_default("MPSTAGED_TEST", "one");
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "one");
    environ_default("MPSTAGED_TEST", "two");
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "one");
    environ_remove("MPSTAGED_TEST");
    ck_assert_ptr_null(getenv("MPSTAGED_TEST"));
    environ_remove("MPSTAGED_TEST");
    environ_default("MPSTAGED_TEST", "");
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "");       /* empty is set, too */
    environ_default("MPSTAGED_TEST", "three");
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "");
}
END_TEST

START_TEST(longer_names_are_others)
{
    environ_default("MPSTAGED_TES", "short");
    environ_default("MPSTAGED_TEST_LONG", "long");
    environ_remove("MPSTAGED_TEST");
    environ_default("MPSTAGED_TEST", "middle");
    environ_remove("MPSTAGED_TES");
    ck_assert_ptr_null(getenv("MPSTAGED_TES"));
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "middle");
    ck_assert_str_eq(getenv("MPSTAGED_TEST_LONG"), "long");
    ck_assert_ptr_nonnull(getenv("PATH"));
}
END_TEST

START_TEST(an_empty_environment)
{
    clearenv();
    environ_remove("MPSTAGED_TEST");
    environ_default("MPSTAGED_TEST", "one");
    ck_assert_str_eq(getenv("MPSTAGED_TEST"), "one");
    ck_assert_ptr_null(environ[1]);
}
END_TEST

/* MPI's own start calls setenv. */
START_TEST(the_c_library_may_go_on)
{
    environ_default("MPSTAGED_A", "a");
    setenv("MPSTAGED_B", "b", 1);
    environ_default("MPSTAGED_C", "c");
    setenv("MPSTAGED_A", "A", 1);
    unsetenv("MPSTAGED_B");
    ck_assert_str_eq(getenv("MPSTAGED_A"), "A");
    ck_assert_ptr_null(getenv("MPSTAGED_B"));
    ck_assert_str_eq(getenv("MPSTAGED_C"), "c");
}
END_TEST

/* Nothing is lost to a leak checker when the C library takes a variable out of the table. */
START_TEST(what_is_taken_away_is_kept)
{
    environ_default("MPSTAGED_TAKEN", "a value that is long enough to be looked for");
    unsetenv("MPSTAGED_TAKEN");
    environ_default("MPSTAGED_TAKEN", "another");
    ck_assert_str_eq(getenv("MPSTAGED_TAKEN"), "another");
    unsetenv("MPSTAGED_TAKEN");
}
END_TEST

static atomic_bool over;
static atomic_int wrong;

static void *reader(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        const char *known = getenv("MPSTAGED_KNOWN");
        if (!known || strcmp(known, "always") || getenv("MPSTAGED_UNKNOWN")) atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

/* With setenv in the place of environ_default the readers crash in glibc 2.36. */
START_TEST(readers_are_not_disturbed)
{
    pthread_t t[READERS];
    char name[32];
    environ_default("MPSTAGED_KNOWN", "always");
    for (int i = 0; i < READERS; i++) sure(pthread_create(&t[i], NULL, reader, NULL) == 0, "a thread");
    for (int i = 0; i < CHANGES; i++) {
        snprintf(name, sizeof name, "MPSTAGED_%d", i);
        environ_default(name, "x");
        if (i % 2) environ_remove(name);
        usleep(50);
    }
    atomic_store(&over, true);
    for (int i = 0; i < READERS; i++) pthread_join(t[i], NULL);
    ck_assert_int_eq(atomic_load(&wrong), 0);
    ck_assert_ptr_nonnull(getenv("MPSTAGED_398"));
    ck_assert_ptr_null(getenv("MPSTAGED_399"));
}
END_TEST

int main(void)
{
    TCase *t = suite_case("environ", 60);
    tcase_add_test(t, a_default_is_set_once);
    tcase_add_test(t, longer_names_are_others);
    tcase_add_test(t, an_empty_environment);
    tcase_add_test(t, the_c_library_may_go_on);
    tcase_add_test(t, what_is_taken_away_is_kept);
    tcase_add_test(t, readers_are_not_disturbed);
    return suite_run("environ", CK_FORK, t);
}
