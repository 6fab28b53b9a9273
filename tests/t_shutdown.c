/* Why a process ends, what signals request, and which rank speaks for a job without rank 0. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cluster/shutdown.h"
#include "cluster/heartbeat.h"
#include "cluster/leader.h"
#include "sure.h"

START_TEST(first_cause_wins)
{
    struct failure f;
    shutdown_phase(SHUTDOWN_STEP, NULL);
    ck_assert(!abort_failure(&f));
    abort_request(1, E_STOPPED, "stopped");
    abort_request(FAILURE_NOBODY, E_DATA, "x.idx: offset 3: bad");
    abort_request(2, E_DEVICE, "later");
    ck_assert(abort_failure(&f));
    ck_assert_int_eq(f.e.code, E_DATA);
    ck_assert_str_eq(f.e.text, "x.idx: offset 3: bad");
    ck_assert_int_eq(atomic_load(abort_code()), E_STOPPED);
    ck_assert_int_eq(f.rank, FAILURE_NOBODY);
}
END_TEST

/* Rank 0 that lost its neighbour does not know why; a report of any rank says more, and so does the detector. */
START_TEST(a_doubt_gives_way)
{
    struct failure f, found = {.rank = 1, .e = {E_DEVICE, "rank 1 exited"}};
    shutdown_phase(SHUTDOWN_STEP, NULL);
    abort_doubt("the connection broke");
    ck_assert_int_eq(atomic_load(abort_code()), 0);
    if (_i) abort_event(ON_FOUND, &found);
    else abort_request(1, E_DEVICE, "the device is gone");
    abort_request(2, E_DATA, "later");
    ck_assert(abort_failure(&f) && f.rank == 1);
    ck_assert_str_eq(f.e.text, _i ? "rank 1 exited" : "the device is gone");
}
END_TEST

/* A rank that was stopped does not know of checkpoints; ranks that are threads of this process do. */
START_TEST(what_is_left_is_said_once)
{
    struct failure f;
    shutdown_phase(SHUTDOWN_STEP, NULL);
    shutdown_saved(7);
    abort_request(1, E_STOPPED, "stopped by SIGTERM; the running step is discarded");
    ck_assert(abort_failure(&f));
    ck_assert_str_eq(f.e.text, "stopped by SIGTERM; the running step is discarded; --resume continues from "
                             "checkpoints/step-00000007");
    abort_request(1, E_HANG, "rank 1 is not responding");        /* a cause comes before a stop */
    ck_assert(abort_failure(&f));
    ck_assert_str_eq(f.e.text, "rank 1 is not responding; --resume continues from checkpoints/step-00000007");
}
END_TEST

/* Bad data would end a resumed run, too. */
START_TEST(nothing_is_left_of_bad_data)
{
    struct failure f;
    shutdown_phase(SHUTDOWN_STEP, NULL);
    shutdown_saved(7);
    abort_request(0, E_DATA, "x.idx: offset 3: bad");
    ck_assert(abort_failure(&f));
    ck_assert_str_eq(f.e.text, "x.idx: offset 3: bad");
}
END_TEST

static atomic_int woken;
static void on_woken(void *ctx) { atomic_fetch_add(&woken, *(int *)ctx); }

/* Handlers run in the thread that shutdown_begin makes, not in this one. Returns what was asked for, within 10 s. */
static unsigned asked_by(int number)
{
    unsigned asked = 0;
    ck_assert_int_eq(kill(getpid(), number), 0);
    for (int i = 0; i < 10000 && !(asked = shutdown_asked()); i++) nanosleep(&(struct timespec){.tv_nsec = 1000000},
                                                                             NULL);
    return asked;
}

static void woken_becomes(int n)
{
    for (int i = 0; i < 10000 && atomic_load(&woken) != n; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(atomic_load(&woken), n);
}

START_TEST(signals_ask)
{
    int one = 1;
    shutdown_begin(true);
    signals_open();
    ck_assert_uint_eq(shutdown_asked(), 0);
    ck_assert_uint_eq(asked_by(SIGUSR2), SHUTDOWN_ASK_CHECKPOINT);
    shutdown_wake(on_woken, &one);
    ck_assert_uint_eq(asked_by(SIGUSR1), SHUTDOWN_ASK_CHECKPOINT_AND_STOP);
    woken_becomes(1);
    ck_assert_int_eq(kill(getpid(), SIGUSR2), 0);
    woken_becomes(2);
    ck_assert_int_eq(kill(getpid(), SIGHUP), 0);
    woken_becomes(3);
    ck_assert_uint_eq(shutdown_asked(), SHUTDOWN_ASK_CHECKPOINT | SHUTDOWN_ASK_REOPEN_LOG);
    ck_assert_uint_eq(shutdown_asked(), 0);
}
END_TEST

static atomic_int entered, left;
static void on_slowly_woken(void *ctx)
{
    (void)ctx;
    atomic_store(&entered, 1);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    atomic_store(&left, 1);
}

/* What is woken may be freed when nobody is to be woken any more: a handler of another thread has ended by then. */
START_TEST(nobody_is_woken_any_more)
{
    shutdown_begin(true);
    signals_open();
    shutdown_wake(on_slowly_woken, NULL);
    ck_assert_int_eq(kill(getpid(), SIGUSR2), 0);
    while (!atomic_load(&entered)) sched_yield();
    shutdown_wake(NULL, NULL);
    ck_assert_int_eq(atomic_load(&left), 1);
}
END_TEST

/* Of many processes that ask at once or later, when the first has ended, one speaks. */
START_TEST(one_process_speaks)
{
    enum { MANY = 8 };
    struct leader_place p;
    int n = 0, status;
    leader_make(&p);
    for (int i = 0; i < MANY; i++)
        if (fork() == 0) {
            leader_join(&p);
            _exit(leader_take() + 2 * leader_take());
        }
    for (int i = 0; i < MANY; i++) {
        ck_assert(wait(&status) > 0 && WIFEXITED(status));
        n += WEXITSTATUS(status);
    }
    ck_assert_int_eq(n, 1);
    ck_assert(!leader_take());
}
END_TEST

START_TEST(phases_have_names)
{
    ck_assert_str_eq(shutdown_doing(), "starting");
    shutdown_phase(SHUTDOWN_START, "reading data");
    ck_assert_str_eq(shutdown_doing(), "reading data");
    shutdown_phase(SHUTDOWN_STEP, NULL);
    ck_assert(shutdown_doing() == NULL && shutdown_phase_now() == SHUTDOWN_STEP);
    shutdown_phase(SHUTDOWN_EVALUATION, NULL);
    ck_assert_str_eq(shutdown_doing(), "evaluating");
}
END_TEST

/* ---- two processes ----------------------------------------------------------------------------------------------- */

static int line[2];
static void gather(struct world *w, void *all, size_t bytes)
{
    char *own = (char *)all + (size_t)w->rank * bytes, *other = (char *)all + (size_t)!w->rank * bytes;
    ck_assert_int_eq(write(line[w->rank], own, bytes), (ssize_t)bytes);
    ck_assert_int_eq(recv(line[w->rank], other, bytes, MSG_WAITALL), (ssize_t)bytes);
}

static void meet(int rank)
{
    static struct world w;
    struct err e = {0};
    w = (struct world){.rank = rank, .size = 2, .here = 2, .rank_here = rank, .allgather = gather};
    ck_assert_msg(!heartbeat_begin(false, 0, &e) && !heartbeat_join(&w, &e), "%s", e.text);
}

/* Rank 1 has said that it ends, and does not; run.hang_timeout is 0. */
START_TEST(the_end_is_not_awaited_for_ever)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    pid_t child = fork();
    if (!child) {
        meet(1);
        heartbeat_bye(NULL);
        for (;;) pause();
    }
    meet(0);
    heartbeat_end();
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* Sends it to itself and waits until the handlers' thread has taken it. */
static void hear(int number)
{
    sigset_t pending;
    if (kill(getpid(), number)) _exit(1);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        sigpending(&pending);
    } while (sigismember(&pending, number));
}

/* The kernel's word that the launcher is gone comes first, while getppid still names it; who stops the process after
 * that has not made it a wish. Where the launcher lives, it is one. */
static const struct { bool orphan; int code; } last[] = {{true, E_DEVICE}, {false, E_STOPPED}};
START_TEST(a_lost_launcher_stays_lost)
{
    int status = 0;
    pid_t child = fork();
    if (!child) {
        shutdown_begin(true);
        shutdown_launched();
        if (last[_i].orphan) hear(SIGRTMIN + 1);
        hear(SIGTERM);
        for (;;) pause();
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == last[_i].code, "status %d", status);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("fate", 60);
    tcase_add_test(t, first_cause_wins);
    tcase_add_loop_test(t, a_doubt_gives_way, 0, 2);
    tcase_add_test(t, what_is_left_is_said_once);
    tcase_add_test(t, nothing_is_left_of_bad_data);
    tcase_add_test(t, signals_ask);
    tcase_add_test(t, nobody_is_woken_any_more);
    tcase_add_test(t, one_process_speaks);
    tcase_add_test(t, phases_have_names);
    tcase_add_loop_test(t, a_lost_launcher_stays_lost, 0, N_OF(last));
    tcase_add_test(t, the_end_is_not_awaited_for_ever);
    return suite_run("fate", CK_FORK, t);
}
