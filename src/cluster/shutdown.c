/* The abort code, the first cause, phases, signals. */
#include "config.h"
#include <errno.h>
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
#include "cluster/log.h"
#include "cluster/shutdown.h"

typedef void waker(void *ctx);
typedef void ender(void *ctx, int code);

static struct {
    atomic_int word, signal, phase;
    _Atomic uint64_t since;                               /* when the abort code was set; 0: not set */
    _Atomic(const char *) doing;                          /* NULL: the phase's name */
    sem_t came;                                           /* posted when the abort code is set */
    int patience_ms;
    pid_t launcher;                                       /* 0: none */
    atomic_bool trains;                                   /* then saved is valid */
    _Atomic uint64_t saved;
    atomic_bool orphan;                                   /* a signal came after the launcher had exited */
    pthread_mutex_t lock;
    struct cause first;
    atomic_uint asked;
    _Atomic(waker *) wake;
    _Atomic(void *) wake_ctx;
    atomic_int waking;                                    /* handlers that may be calling wake now */
    _Atomic(ender *) end;
    _Atomic(void *) end_ctx;
} ending = {.lock = PTHREAD_MUTEX_INITIALIZER, .first.who = SHUTDOWN_NOBODY};

atomic_int *abort_code(void) { return &ending.word; }
uint64_t shutdown_since(void) { return atomic_load(&ending.since); }

/* ---- phases ------------------------------------------------------------------------------------------------------ */

void shutdown_phase(enum shutdown_phase p, const char *doing)
{
    atomic_store(&ending.phase, (int)p);
    atomic_store(&ending.doing, doing);
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

static void word_set(int code)
{
    uint64_t never = 0;
    int none = 0;
    atomic_compare_exchange_strong(&ending.since, &never, clock_ns());
    if (atomic_compare_exchange_strong(&ending.word, &none, code)) sem_post(&ending.came);
}

void abort_set_of(int who, int code, const char *text)
{
    pthread_mutex_lock(&ending.lock);
    if (!ending.first.code || (ending.first.code == E_STOPPED && code != E_STOPPED)) {
        ending.first.code = code;
        ending.first.who = who;
        snprintf(ending.first.text, sizeof ending.first.text, "%s", text);
    }
    pthread_mutex_unlock(&ending.lock);
    word_set(code);
}

void abort_set(int code, const char *text) { abort_set_of(SHUTDOWN_NOBODY, code, text); }

int shutdown_who(void)
{
    pthread_mutex_lock(&ending.lock);
    int who = ending.first.who;
    pthread_mutex_unlock(&ending.lock);
    return who;
}

void shutdown_saved(uint64_t step)
{
    atomic_store(&ending.saved, step);
    atomic_store(&ending.trains, true);
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

bool shutdown_get(struct err *e)
{
    char left[100];
    pthread_mutex_lock(&ending.lock);
    e->code = ending.first.code;
    memcpy(e->text, ending.first.text, sizeof e->text);
    pthread_mutex_unlock(&ending.lock);
    if (e->code == E_STOPPED || e->code == E_DEVICE || e->code == E_HANG) left_add(e);
    int number = atomic_load(&ending.signal);
    if (!e->code && number && (atomic_load(&ending.orphan) || launcher_gone(number))) /* nobody requested this */
        err_set(e, E_DEVICE, "the launcher, process %d, exited; the running step is discarded%s",
                (int)ending.launcher, left_text(left, sizeof left));
    const char *doing = shutdown_doing();
    if (!e->code && number && doing)
        err_set(e, E_STOPPED, "stopped by SIG%s while %s%s", sigabbrev_np(number), doing,
                left_text(left, sizeof left));
    else if (!e->code && number)
        err_set(e, E_STOPPED, "stopped by SIG%s; the running step is discarded%s", sigabbrev_np(number),
                left_text(left, sizeof left));
    return e->code != 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void on_alarm(int number)
{
    (void)number;
    _exit(atomic_load(&ending.word));
}

void shutdown_end_by(void (*end)(void *ctx, int code), void *ctx)
{
    if (end) atomic_store(&ending.end_ctx, ctx);
    atomic_store(&ending.end, end);
}

/* SIGALRM ends the process if printing blocks, or the library that ends the job does. */
_Noreturn void shutdown_end(void)
{
    struct sigaction late = {.sa_handler = on_alarm};
    struct err e = {0};
    sigaction(SIGALRM, &late, NULL);
    alarm(DEADLINE_PRINT / 1000);
    shutdown_get(&e);
    log_error(e.code, e.text);
    ender *end = atomic_load(&ending.end);
    if (end) end(atomic_load(&ending.end_ctx), e.code);
    _exit(e.code);
}

/* The main thread may not check the abort code for minutes: in a search, a library's set-up, a read from a dead server.
 * Then only this thread can end the process. */
static void *watch(void *arg)
{
    (void)arg;
    while (sem_wait(&ending.came)) continue;
    bool soon = atomic_load(&ending.signal) || shutdown_phase_now() == SHUTDOWN_START;
    int ms = soon ? ending.patience_ms : DEADLINE_PROCESS_FAIL;
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
    shutdown_end();
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
    word_set(E_STOPPED);
}

static void on_ask(int number)
{
    int saved = errno;
    atomic_fetch_or(&ending.asked, number == SIGUSR1 ? SHUTDOWN_ASK_CHECKPOINT_AND_STOP
                                 : number == SIGUSR2 ? SHUTDOWN_ASK_CHECKPOINT : SHUTDOWN_ASK_REOPEN_LOG);
    atomic_fetch_add(&ending.waking, 1);
    waker *wake = atomic_load(&ending.wake);
    if (wake) wake(atomic_load(&ending.wake_ctx));
    atomic_fetch_sub(&ending.waking, 1);
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

void shutdown_begin(int patience_ms)
{
    static const int which[] = {SIGTERM, SIGINT, SIGALRM};
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    ending.patience_ms = patience_ms;
    sem_init(&ending.came, 0, 0);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    else _exit(log_error(E_OS, "cannot create a thread (ulimit -u, ulimit -v)"));
    leave_to_watch(which, sizeof which / sizeof *which);
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
    signal(SIGTERM, SIG_DFL);
    signal(orphaned(), SIG_DFL);
}
