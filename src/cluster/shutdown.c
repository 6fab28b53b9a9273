/* The state of the end, the failure, phases, signals. */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "cluster/heartbeat.h"
#include "cluster/log.h"
#include "cluster/shutdown.h"

typedef void waker(void *ctx);
typedef void ender(void *ctx, const struct failure *f, bool self);

static struct {
    atomic_int word, signal, phase;
    atomic_int state;                                     /* enum shutdown_state */
    _Atomic uint64_t since;                               /* when the first failure came; 0: none */
    _Atomic(const char *) doing;                          /* NULL: the phase's name */
    sem_t came;                                           /* posted then, and by shutdown_over */
    sem_t deaf;                                           /* posted when no thread receives signals */
    atomic_bool over;
    bool runs;
    pid_t launcher;                                       /* 0: none */
    atomic_bool trains;                                   /* then saved is valid */
    _Atomic uint64_t saved;
    atomic_bool orphan;                                   /* a signal came after the launcher had exited */
    pthread_mutex_t lock;
    struct failure first;
    int dir;                                              /* the run directory; -1: none yet */
    char shown[PATH_MAX];
    sem_t written;                                        /* posted when why.json is written */
    atomic_uint asked;
    _Atomic(waker *) wake;
    _Atomic(void *) wake_ctx;
    atomic_int waking;                                    /* handlers that may be calling wake now */
    _Atomic(ender *) end;
    _Atomic(void *) end_ctx;
} ending = {.lock = PTHREAD_MUTEX_INITIALIZER, .first.rank = FAILURE_NOBODY, .dir = -1};

atomic_int *abort_code(void) { return &ending.word; }

/* Moves to the state that follows. Handlers call it, so it takes no lock. */
static enum shutdown_action state_move(enum shutdown_event on)
{
    int in = atomic_load(&ending.state);
    struct shutdown_step s;
    do s = shutdown_step((enum shutdown_state)in, on);
    while (!atomic_compare_exchange_weak(&ending.state, &in, (int)s.next));
    return s.action;
}

enum shutdown_action shutdown_leave(void) { return state_move(ON_LEAVE); }
struct shutdown_times shutdown_now(void) { return shutdown_times((enum shutdown_state)atomic_load(&ending.state)); }

/* ---- phases ------------------------------------------------------------------------------------------------------ */

void shutdown_phase(enum shutdown_phase p, const char *doing)
{
    int setup = IN_SETUP;
    atomic_store(&ending.phase, (int)p);
    atomic_store(&ending.doing, doing);
    if (p != SHUTDOWN_START) atomic_compare_exchange_strong(&ending.state, &setup, IN_RUN);
}

enum shutdown_phase shutdown_phase_now(void) { return (enum shutdown_phase)atomic_load(&ending.phase); }

const char *shutdown_doing(void)
{
    static const char *const name[] = {[SHUTDOWN_START] = "starting", [SHUTDOWN_STEP] = NULL,
                                       [SHUTDOWN_EVALUATION] = "evaluating",
                                       [SHUTDOWN_END] = "ending"};
    const char *doing = atomic_load(&ending.doing);
    return doing ? doing : name[shutdown_phase_now()];
}

bool shutdown_elsewhere(void)
{
    enum shutdown_phase now = shutdown_phase_now();
    return atomic_load(&ending.doing) || now == SHUTDOWN_START || now == SHUTDOWN_END;
}

/* ---- the cause --------------------------------------------------------------------------------------------------- */

/* The signal that the kernel sends when the launcher dies. It is not SIGTERM, because living launchers send that, too.
 * And if the launcher's thread that made this process dies first, getppid() still returns the launcher's number for a
 * moment. */
static int orphaned(void) { return SIGRTMIN + 1; }
static bool launcher_gone(int number)
{
    return number == orphaned() || (ending.launcher && getppid() != ending.launcher);
}

static void clock_start(void)
{
    uint64_t never = 0;
    if (atomic_compare_exchange_strong(&ending.since, &never, clock_ns())) sem_post(&ending.came);
}

static void word_set(int code)
{
    int none = 0;
    atomic_compare_exchange_strong(&ending.word, &none, code);
    clock_start();
}

enum shutdown_action abort_event(enum shutdown_event on, const struct failure *f)
{
    pthread_mutex_lock(&ending.lock);
    enum shutdown_action what = state_move(on);
    bool ends = what == DO_STORE || what == DO_SPREAD;
    if (ends || what == DO_DOUBT) ending.first = *f;
    pthread_mutex_unlock(&ending.lock);
    if (ends) word_set(f->e.code);
    if (what == DO_DOUBT) clock_start();
    return what;
}

void abort_report(const struct failure *f)
{
    abort_event(f->e.code == E_STOPPED ? ON_STOP : ON_CAUSE, f);
}

static struct failure failure_here(int rank, int code, const char *text)
{
    struct failure f;
    heartbeat_locate(rank, &f);
    err_set(&f.e, code ? code : E_INTERNAL, "%s", text);
    if (rank >= 0) heartbeat_where(rank, &f.e);
    return f;
}

void abort_request(int rank, int code, const char *text)
{
    struct failure f = failure_here(rank, code, text);
    abort_report(&f);
}

void abort_doubt(const char *text)
{
    struct failure f = failure_here(0, E_DEVICE, text);
    abort_event(ON_LINK, &f);
}

void shutdown_saved(uint64_t step)
{
    atomic_store(&ending.saved, step);
    atomic_store(&ending.trains, step != SHUTDOWN_UNNAMED);
}

/* What remains of a run that a signal, a lost rank or a hang ends. */
static const char *left_text(char *buf, size_t n)
{
    uint64_t step = atomic_load(&ending.saved);
    *buf = '\0';
    if (!atomic_load(&ending.trains)) return buf;
    if (step) snprintf(buf, n, "; --resume continues from checkpoints/step-%08llu", (unsigned long long)step);
    else snprintf(buf, n, "; no checkpoint was written (see checkpoint.every_seconds)");
    return buf;
}

/* The text from another rank that was stopped names no checkpoint. A text from a rank that is a thread of this process
 * does. */
static void left_add(struct err *e)
{
    char left[100];
    size_t n = strlen(e->text);
    if (!strstr(e->text, left_text(left, sizeof left))) snprintf(e->text + n, sizeof e->text - n, "%s", left);
}

/* What a signal means. Nobody requested the end of a process whose launcher exited. */
static void signal_text(int number, struct err *e)
{
    char left[100];
    const char *doing = shutdown_doing(), *name = sigabbrev_np(number);
    left_text(left, sizeof left);
    if (atomic_load(&ending.orphan) || launcher_gone(number))
        err_set(e, E_DEVICE, "the launcher, process %d, exited; the running step is discarded%s",
                (int)ending.launcher, left);
    else if (doing) err_set(e, E_STOPPED, "stopped by SIG%s while %s%s", name, doing, left);
    else err_set(e, E_STOPPED, "stopped by SIG%s; the running step is discarded%s", name, left);
}

bool abort_failure(struct failure *f)
{
    int number = atomic_load(&ending.signal);
    pthread_mutex_lock(&ending.lock);
    *f = ending.first;
    pthread_mutex_unlock(&ending.lock);
    int code = f->e.code;
    if (code == E_STOPPED || code == E_DEVICE || code == E_HANG) left_add(&f->e);
    if (!code && number) {
        heartbeat_locate(FAILURE_NOBODY, f);
        signal_text(number, &f->e);
    }
    return f->e.code != 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void on_alarm(int number)
{
    (void)number;
    _exit(atomic_load(&ending.word));
}

void shutdown_end_by(void (*end)(void *ctx, const struct failure *f, bool self), void *ctx)
{
    if (end) atomic_store(&ending.end_ctx, ctx);
    atomic_store(&ending.end, end);
}

void shutdown_run(const char *dir)
{
    snprintf(ending.shown, sizeof ending.shown, "%s", dir);
    ending.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void *why_write(void *failure)
{
    failure_write(failure, ending.dir, ending.shown);
    sem_post(&ending.written);
    return NULL;
}

/* Waits for a semaphore, so long at most. */
static void wait_at_most(sem_t *s, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sem_clockwait(s, CLOCK_MONOTONIC, &until) && errno == EINTR) continue;
}

/* In a thread, because a file system that is not responding must not hold up the end. */
static void why_tell(struct failure *f)
{
    pthread_t thread;
    if (ending.dir < 0 || log_is_quiet()) return;
    sem_init(&ending.written, 0, 0);
    if (pthread_create(&thread, NULL, why_write, f)) return;
    wait_at_most(&ending.written, DEADLINE_WHY);
}

/* SIGALRM ends the process if printing blocks, or the library that ends the job does. */
static _Noreturn void finish(enum shutdown_action how)
{
    struct sigaction late = {.sa_handler = on_alarm};
    static struct failure f;
    while (how != DO_END_JOB && how != DO_END_SELF) pause();
    sigaction(SIGALRM, &late, NULL);
    alarm(DEADLINE_PRINT / 1000);
    abort_failure(&f);
    atomic_store(&ending.word, f.e.code);
    log_error(f.e.code, f.e.text);
    why_tell(&f);
    alarm(DEADLINE_EXIT / 1000);
    ender *end = atomic_load(&ending.end);
    if (end) end(atomic_load(&ending.end_ctx), &f, how == DO_END_SELF);
    _exit(f.e.code);
}

_Noreturn void shutdown_end(void) { finish(state_move(ON_DONE)); }

/* Sleeps until then; a signal, whose handlers run in this thread, cuts it short. */
static void on_time(int ms)
{
    uint64_t end = atomic_load(&ending.since) + DEADLINE_NS(ms), now = clock_ns(), ns = now < end ? end - now : 0;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL);
}

static void scheduler_ask(unsigned what)
{
    atomic_fetch_or(&ending.asked, what);
    atomic_fetch_add(&ending.waking, 1);
    waker *wake = atomic_load(&ending.wake);
    if (wake) wake(atomic_load(&ending.wake_ctx));
    atomic_fetch_sub(&ending.waking, 1);
}

/* The main thread may not check the abort code for minutes: in a search, a library's set-up, a read from a dead server.
 * Then only this thread can end the process. The deadlines are those of the first state after the abort code was set:
 * a cause that replaces a stop gets no more time. */
static void *watch(void *arg)
{
    (void)arg;
    while (sem_wait(&ending.came)) continue;
    if (atomic_load(&ending.over)) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        sem_post(&ending.deaf);
        for (;;) pause();
    }
    struct shutdown_times t = shutdown_now();
    on_time(ending.runs ? t.late : 0);
    if (state_move(ON_LATE) == DO_ASK) scheduler_ask(SHUTDOWN_ASK_END);
    on_time(ending.runs ? t.overdue : 0);
    finish(state_move(ON_OVERDUE));
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* Only the shutdown thread, which started earlier, runs handlers: the caller and all threads that it makes block these
 * signals. oneDNN's matrix products use the stack pointer as a pointer into their workspace. A handler that interrupts
 * one would write its frame over the memory before that. */
static void leave_to_watch(const int *which, size_t n)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < n; i++) sigaddset(&set, which[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* The launcher may send a second signal when it dies. That signal must not count as a user's request. */
static void on_signal(int number)
{
    if (launcher_gone(number)) atomic_store(&ending.orphan, true);
    atomic_store(&ending.signal, number);
    if (state_move(ON_STOP) == DO_STORE) word_set(E_STOPPED);
}

static void on_ask(int number)
{
    int saved = errno;
    scheduler_ask(number == SIGUSR1 ? SHUTDOWN_ASK_CHECKPOINT_AND_STOP
                : number == SIGUSR2 ? SHUTDOWN_ASK_CHECKPOINT : SHUTDOWN_ASK_REOPEN_LOG);
    errno = saved;
}

void signals_open(void)
{
    static const int which[] = {SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction ask = {.sa_handler = on_ask, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) sigaction(which[i], &ask, NULL);
    leave_to_watch(which, sizeof which / sizeof *which);
}

unsigned shutdown_asked(void) { return atomic_exchange(&ending.asked, 0); }

void shutdown_wake(void (*wake)(void *ctx), void *ctx)
{
    if (wake) atomic_store(&ending.wake_ctx, ctx);
    atomic_store(&ending.wake, wake);
    /* a handler in another thread may have loaded the old one; handlers cannot take locks */
    while (!wake && atomic_load(&ending.waking)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

void shutdown_begin(bool runs)
{
    static const int which[] = {SIGTERM, SIGINT, SIGALRM};
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    ending.runs = runs;
    sem_init(&ending.came, 0, 0);
    sem_init(&ending.deaf, 0, 0);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    else abort_request(FAILURE_NOBODY, E_OS, "cannot create a thread (ulimit -u, ulimit -v)"), shutdown_end();
    leave_to_watch(which, sizeof which / sizeof *which);
}

void shutdown_over(void)
{
    enum { MOST_MS = 100 };
    if (atomic_load(&ending.since)) return;               /* the thread is at its deadlines */
    atomic_store(&ending.over, true);
    sem_post(&ending.came);
    wait_at_most(&ending.deaf, MOST_MS);
}

void shutdown_ignore(void)
{
    static const int which[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) signal(which[i], SIG_IGN);
}

void shutdown_launched(void)
{
    int which[] = {orphaned()};
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    ending.launcher = getppid();
    sigaction(*which, &stop, NULL);
    leave_to_watch(which, 1);
    prctl(PR_SET_PDEATHSIG, *which);
}

void shutdown_let_kill(void)
{
    if (heartbeat_threaded()) return;
    signal(SIGTERM, SIG_DFL);
    signal(orphaned(), SIG_DFL);
}
