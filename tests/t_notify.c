/* Messages to a service manager, read from this test's own socket. */
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/file.h"
#include "cluster/log.h"
#include "cluster/terminal.h"
#include "report/progress.h"
#include "report/reporter.h"
#include "cluster/sd_notify.h"
#include "files.h"
#include "sure.h"

enum { MS = 1000000 };
static const struct notify_times SHORT = {.extend = 100, .tick = 20, .least = 50};
static int manager = -1;

/* Listens under that name, "@" for the abstract kind, and tells the program. */
static void listen_at(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, name, strlen(name));
    if (*name == '@') a.sun_path[0] = 0;
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    ck_assert_int_eq(bind(manager, (struct sockaddr *)&a, n), 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static char where[200];

static void enter(void)
{
    scratch_enter();
    char *dir = getcwd(NULL, 0);
    snprintf(where, sizeof where, "%s/notify", dir);
    free(dir);
    unsetenv("WATCHDOG_USEC");
    listen_at(where);
}

static void leave(void)
{
    notify_close();
    close(manager);
    scratch_leave();
}

/* The next message, or "". */
static const char *heard(void)
{
    static char buf[4096];
    ssize_t n = recv(manager, buf, sizeof buf - 1, 0);
    buf[n > 0 ? n : 0] = 0;
    return buf;
}

static void hear(const char *want) { ck_assert_str_eq(heard(), want); }

extern const struct reporter reporter_notify;
static void tell(struct progress *p, enum event_kind kind)
{
    reporter_notify.on(p, &(struct event){.kind = kind, .held = true}, NULL);
}

static struct progress run(uint64_t step)
{
    struct progress p = {.step = step, .steps = 90000, .score = {2.3141}, .rate = 812.04, .last_ns = 10 * MS};
    p.scores.n = 1;
    p.scores.of[0].name = "loss";
    return p;
}

static void compute(int ms)
{
    for (uint64_t until = clock_process_ns() + (uint64_t)ms * MS; clock_process_ns() < until;) { }
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

START_TEST(nobody_is_told_without_a_socket)
{
    static const char *const wrong[] = {"", "notify", "/", "@", "vsock:2:1"};
    char *long_name = calloc(1, 300);
    memset(long_name, '/', 299);
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        setenv("NOTIFY_SOCKET", i < sizeof wrong / sizeof *wrong ? wrong[i] : long_name, 1);
        notify_open(NULL);
        notify_ready(".");
        notify_close();
    }
    unsetenv("NOTIFY_SOCKET");
    notify_open(NULL);
    notify_ready(".");
    free(long_name);
    hear("");
}
END_TEST

START_TEST(a_name_may_be_abstract)
{
    char name[60];
    close(manager);
    snprintf(name, sizeof name, "@mpstaged-test-%d", (int)getpid());
    listen_at(name);
    notify_open(NULL);
    notify_failed(70, "there");
    hear("STATUS=failed: there\nX_MPSTAGED_FAILED=70");
}
END_TEST

START_TEST(phases_ask_for_time)
{
    notify_open(NULL);
    notify_phase("reading data", NOTIFY_COMPUTES);
    hear("STATUS=reading data\nEXTEND_TIMEOUT_USEC=300000000");
    notify_phase(NULL, NOTIFY_WAITS);
    notify_others();
    hear("");
}
END_TEST

/* Time is asked for again as long as something is computed, and only in phases that compute: others wait for ranks,
 * and MPI computes while it waits. */
START_TEST(only_what_computes_gets_more_time)
{
    notify_open(&SHORT);
    notify_phase("planning", NOTIFY_COMPUTES);
    hear("STATUS=planning\nEXTEND_TIMEOUT_USEC=100000");
    compute(25);
    notify_alive();
    hear("EXTEND_TIMEOUT_USEC=100000");
    notify_alive();
    hear("");
    poll(NULL, 0, 200);
    notify_alive();
    hear("");
    compute(25);
    notify_alive();
    hear("EXTEND_TIMEOUT_USEC=100000");
    notify_phase("connecting ranks", NOTIFY_WAITS);
    hear("STATUS=connecting ranks\nEXTEND_TIMEOUT_USEC=100000");
    compute(25);
    notify_alive();
    hear("");
}
END_TEST

/* A slow disk takes longer than all else, and little of a core. */
START_TEST(what_reads_gets_more_time)
{
    notify_open(&SHORT);
    notify_phase("looking for a checkpoint", NOTIFY_READS);
    hear("STATUS=looking for a checkpoint\nEXTEND_TIMEOUT_USEC=100000");
    for (int i = 0; i < 2; i++) {
        file_count(1 << 20);
        poll(NULL, 0, 25);
        notify_alive();
        hear("EXTEND_TIMEOUT_USEC=100000");
    }
    poll(NULL, 0, 25);
    notify_alive();
    hear("");                                             /* it stands still */
    compute(25);
    notify_alive();
    hear("");                                             /* or waits for others */
    file_count(1);
    notify_others();
    heard();
    poll(NULL, 0, 25);
    notify_alive();
    hear("");
    notify_phase("setting weights", NOTIFY_COMPUTES);
    heard();
    file_count(1);
    poll(NULL, 0, 200);
    notify_alive();
    hear("EXTEND_TIMEOUT_USEC=100000");
}
END_TEST

START_TEST(other_ranks_may_take_four_times_as_long)
{
    unsigned long long us = 0;
    notify_open(&SHORT);
    notify_phase("making kernels", NOTIFY_COMPUTES);
    heard();
    compute(60);
    notify_others();
    ck_assert_int_eq(sscanf(heard(), "EXTEND_TIMEOUT_USEC=%llu", &us), 1);
    ck_assert_uint_ge(us, 240000);
    compute(25);
    notify_alive();
    hear("");
}
END_TEST

/* ---- the run ----------------------------------------------------------------------------------------------------- */

START_TEST(ready_names_the_run)
{
    char *dir = getcwd(NULL, 0), want[400];
    snprintf(want, sizeof want, "READY=1\nSTATUS=the first step is running\nX_MPSTAGED_RUN=%s", dir);
    notify_open(NULL);
    notify_ready(".");
    hear(want);
    notify_phase("making the run directory", NOTIFY_WAITS);
    hear("");
    free(dir);
}
END_TEST

START_TEST(a_directory_with_a_line_end_is_not_named)
{
    ck_assert_int_eq(mkdir("a\nREADY=0", 0700), 0);
    notify_open(NULL);
    notify_ready("a\nREADY=0");
    hear("READY=1\nSTATUS=the first step is running");
}
END_TEST

START_TEST(steps_are_told_and_feed_the_watchdog)
{
    struct progress p = run(1200);
    setenv("WATCHDOG_USEC", "120000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    notify_open(NULL);
    notify_ready("/nowhere");
    hear("READY=1\nSTATUS=the first step is running\nWATCHDOG_USEC=1200000000");
    notify_checkpoint(1100);
    hear("X_MPSTAGED_CHECKPOINT=1100");
    tell(&p, EVENT_STEP);
    hear("STATUS=step 1200/90000, loss 2.3141, 812 samples/s, checkpoint 1100\nWATCHDOG=1\nWATCHDOG_USEC=120000000");
    tell(&p, EVENT_STEP);
    hear("");
}
END_TEST

START_TEST(a_resumed_run_has_a_checkpoint)
{
    struct progress p = run(41);
    notify_open(NULL);
    notify_resumed(40);
    hear("X_MPSTAGED_RESUMED=40");
    tell(&p, EVENT_STEP);
    hear("STATUS=step 41/90000, loss 2.3141, 812 samples/s, checkpoint 40\nWATCHDOG=1");
}
END_TEST

/* What is not a finished step or batch is no sign of life. */
START_TEST(nothing_else_feeds_the_watchdog)
{
    setenv("WATCHDOG_USEC", "1000000", 1);
    notify_open(&SHORT);
    notify_phase("planning", NOTIFY_COMPUTES);
    compute(30);
    notify_alive();
    notify_others();
    notify_ready(".");
    notify_checkpoint(1);
    notify_resumed(1);
    notify_stopping("y");
    notify_failed(70, "z");
    int n = 0;
    for (const char *s; *(s = heard()); n++) ck_assert_ptr_null(strstr(s, "WATCHDOG=1"));
    ck_assert_int_ge(n, 6);
}
END_TEST

START_TEST(a_short_watchdog_hears_more_often)
{
    struct progress p = run(5);
    setenv("WATCHDOG_USEC", "100000", 1);
    notify_open(NULL);
    tell(&p, EVENT_STEP);
    ck_assert_ptr_nonnull(strstr(heard(), "WATCHDOG=1"));
    poll(NULL, 0, 25);
    tell(&p, EVENT_STEP);
    ck_assert_ptr_nonnull(strstr(heard(), "WATCHDOG=1"));
}
END_TEST

/* A step that takes longer than the watchdog allows is said so once, with five times its length. */
START_TEST(slow_steps_lengthen_the_watchdog)
{
    struct progress p = run(2);
    setenv("WATCHDOG_USEC", "1000000", 1);
    notify_open(NULL);
    tell(&p, EVENT_STEP);
    ck_assert_ptr_null(strstr(heard(), "WATCHDOG_USEC"));
    p.last_ns = 800 * (uint64_t)MS;
    tell(&p, EVENT_STEP);
    ck_assert_ptr_nonnull(strstr(heard(), "\nWATCHDOG_USEC=4000000"));
    p.last_ns = 10 * MS;
    poll(NULL, 0, 250);
    tell(&p, EVENT_STEP);
    ck_assert_str_eq(heard(), "STATUS=step 2/90000, loss 2.3141, 812 samples/s\nWATCHDOG=1");
}
END_TEST

/* Where steps wait for a disk, the watchdog waits until that would have been named; the next step brings its own time
 * back, in the message that says that it has ended. Not where a rank is silent. */
START_TEST(a_disk_may_take_longer_than_the_watchdog)
{
    struct progress p = run(2);
    char longer[60];
    snprintf(longer, sizeof longer, "WATCHDOG_USEC=%d000", DEADLINE_WATCHED);
    setenv("WATCHDOG_USEC", "100000", 1);
    notify_open(NULL);
    notify_ready("/nowhere");
    heard();
    tell(&p, EVENT_STEP);
    heard();
    poll(NULL, 0, 60);
    notify_poll(true);                                    /* there is no disk to wait for */
    hear("");
    notify_disk(NOTIFY_CHECKPOINT, true);
    notify_poll(false);
    hear("");
    tell(&p, EVENT_STEP);                                      /* it may go on beside the checkpoint */
    ck_assert_ptr_null(strstr(heard(), "WATCHDOG_USEC"));
    notify_poll(true);                                    /* a step has just ended */
    hear("");
    poll(NULL, 0, 60);
    notify_poll(true);
    hear(longer);
    notify_poll(true);
    hear("");
    notify_disk(NOTIFY_FILE, true);
    notify_disk(NOTIFY_CHECKPOINT, false);
    tell(&p, EVENT_STEP);
    ck_assert_ptr_nonnull(strstr(heard(), "WATCHDOG=1\nWATCHDOG_USEC=100000"));
    poll(NULL, 0, 60);
    notify_poll(true);
    hear(longer);
    notify_stopping("y");
    heard();
    notify_poll(true);
    hear("");
    notify_close();
    unsetenv("WATCHDOG_USEC");
    notify_open(NULL);                                    /* without a watchdog */
    notify_ready("/nowhere");
    heard();
    notify_disk(NOTIFY_CHECKPOINT, true);
    notify_poll(true);
    hear("");
}
END_TEST

START_TEST(evaluations_and_pauses_are_told)
{
    struct progress p = run(7);
    notify_open(&SHORT);
    p.test_done = 200, p.test_all = 1000;
    tell(&p, EVENT_STEP);
    hear("STATUS=evaluating 200/1000 samples after step 7\nWATCHDOG=1");
    p.test_done = 0;
    poll(NULL, 0, 60);
    tell(&p, EVENT_TICK);
    hear("STATUS=paused after step 7/90000, loss 2.3141, 812 samples/s\nWATCHDOG=1");
    tell(&p, EVENT_TICK);
    hear("");
    p = (struct progress){.tested = true, .last_ns = 1};
    poll(NULL, 0, 60);
    tell(&p, EVENT_STEP);
    hear("STATUS=evaluated\nWATCHDOG=1");
}
END_TEST

/* ---- the end ----------------------------------------------------------------------------------------------------- */

START_TEST(stopping_is_said_once_and_ends_the_watchdog)
{
    struct progress p = run(9);
    setenv("WATCHDOG_USEC", "1000000", 1);
    notify_open(&SHORT);
    tell(&p, EVENT_STEP);
    heard();
    notify_stopping("stopping");
    hear("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=100000\nWATCHDOG_USEC=0");
    notify_stopping("writing weights");
    hear("");
    p.last_ns = 40 * MS;
    poll(NULL, 0, 60);
    tell(&p, EVENT_STEP);
    hear("EXTEND_TIMEOUT_USEC=200000\nWATCHDOG=1");
}
END_TEST

START_TEST(a_failure_is_one_line)
{
    notify_open(NULL);
    notify_failed(78, "x.conf:3: no \"a\nREADY=1\"");
    hear("STATUS=failed: x.conf:3: no \"a\\x0aREADY=1\"\nX_MPSTAGED_FAILED=78");
    notify_open(NULL);                                    /* a second one changes nothing */
    log_quiet(true);
    log_failed(notify_failed);
    log_error(78, "said by the log");
    hear("STATUS=failed: said by the log\nX_MPSTAGED_FAILED=78");
}
END_TEST

/* ---- a manager that does not read -------------------------------------------------------------------------------- */

/* Sends far more than a queue holds; none of it waits. */
static void fill(void)
{
    for (unsigned n = 0; n < 2000; n++) {
        struct progress p = run(n);
        uint64_t t = clock_ns();
        tell(&p, EVENT_STEP);
        ck_assert_uint_lt(clock_ns() - t, 1000 * (uint64_t)MS);
    }
}

struct wait { const char *want; bool got; };
static void *reader(void *arg)
{
    struct wait *w = arg;
    poll(NULL, 0, 150);
    for (uint64_t until = clock_ns() + 2000 * (uint64_t)MS; !w->got && clock_ns() < until; poll(NULL, 0, 1))
        for (const char *s; *(s = heard());) w->got |= strstr(s, w->want) != NULL;
    return NULL;
}

START_TEST(nobody_waits_for_a_manager_but_what_counts_is_tried_again)
{
    static const char *const want[] = {"READY=1", "X_MPSTAGED_CHECKPOINT=7", "X_MPSTAGED_FAILED=70"};
    notify_open(&(struct notify_times){.extend = 100, .tick = 20});
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        struct wait w = {want[i], false};
        fill();
        ck_assert_int_eq(pthread_create(&thread, NULL, reader, &w), 0);
        if (i == 0) notify_ready(".");
        if (i == 1) notify_checkpoint(7);
        if (i == 2) notify_failed(70, "over");
        pthread_join(thread, NULL);
        ck_assert_msg(w.got, "%s", want[i]);
    }
    fill();
    uint64_t began = clock_ns();
    notify_ready(".");                                    /* nobody reads any more: it gives up */
    ck_assert_uint_lt(clock_ns() - began, 5000 * (uint64_t)MS);
    close(manager);
    unlink(where);
    notify_ready(".");
    notify_failed(70, "gone");
    manager = -1;
}
END_TEST

/* ---- the journal ------------------------------------------------------------------------------------------------- */

static void journal_is(int fd)
{
    struct stat s;
    char name[60];
    ck_assert_int_eq(fstat(fd, &s), 0);
    snprintf(name, sizeof name, "%llu:%llu", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
    setenv("JOURNAL_STREAM", name, 1);
}

START_TEST(the_journal_is_known_by_its_file)
{
    int p[2], q[2], screen = dup(STDERR_FILENO);
    ck_assert(pipe(p) == 0 && pipe(q) == 0);
    unsetenv("JOURNAL_STREAM");
    ck_assert(!terminal_is_journal(false));
    setenv("JOURNAL_STREAM", "rubbish", 1);
    ck_assert(!terminal_is_journal(false));
    journal_is(p[1]);
    ck_assert(!terminal_is_journal(false) && !terminal_is_journal(true));
    dup2(p[1], STDERR_FILENO);
    bool ours = terminal_is_journal(false);
    dup2(q[1], STDERR_FILENO);                            /* redirected elsewhere */
    bool other = terminal_is_journal(false) || terminal_is_journal(true);
    dup2(screen, STDERR_FILENO);
    ck_assert(ours && !other);
}
END_TEST

START_TEST(lines_for_the_journal_begin_with_their_priority)
{
    static const char want[] = "<6>step 1\n<5>note: a long line, which on a terminal would be folded because it has "
                               "more than eighty columns\n<4>warning: slow\n<3>mpstaged: over\n";
    char buf[1000] = "";
    int p[2], screen = dup(STDERR_FILENO);
    ck_assert(pipe(p) == 0);
    dup2(p[1], STDERR_FILENO);
    log_journal(true);
    log_line("step 1");
    log_line("note: a long line, which on a terminal would be folded because it has more than eighty columns");
    log_line("warning: slow");
    log_error(70, "over");
    dup2(screen, STDERR_FILENO);
    ck_assert_int_gt(read(p[0], buf, sizeof buf - 1), 0);
    ck_assert_str_eq(buf, want);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("notify", 60);
    tcase_add_checked_fixture(t, enter, leave);
    tcase_add_test(t, nobody_is_told_without_a_socket);
    tcase_add_test(t, a_name_may_be_abstract);
    tcase_add_test(t, phases_ask_for_time);
    tcase_add_test(t, only_what_computes_gets_more_time);
    tcase_add_test(t, what_reads_gets_more_time);
    tcase_add_test(t, other_ranks_may_take_four_times_as_long);
    tcase_add_test(t, ready_names_the_run);
    tcase_add_test(t, a_directory_with_a_line_end_is_not_named);
    tcase_add_test(t, steps_are_told_and_feed_the_watchdog);
    tcase_add_test(t, a_resumed_run_has_a_checkpoint);
    tcase_add_test(t, nothing_else_feeds_the_watchdog);
    tcase_add_test(t, a_short_watchdog_hears_more_often);
    tcase_add_test(t, slow_steps_lengthen_the_watchdog);
    tcase_add_test(t, a_disk_may_take_longer_than_the_watchdog);
    tcase_add_test(t, evaluations_and_pauses_are_told);
    tcase_add_test(t, stopping_is_said_once_and_ends_the_watchdog);
    tcase_add_test(t, a_failure_is_one_line);
    tcase_add_test(t, nobody_waits_for_a_manager_but_what_counts_is_tried_again);
    tcase_add_test(t, the_journal_is_known_by_its_file);
    tcase_add_test(t, lines_for_the_journal_begin_with_their_priority);
    return suite_run("notify", CK_FORK, t);
}
