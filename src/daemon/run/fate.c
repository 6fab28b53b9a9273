/* The abort word, the first cause, phases, signals. */
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
#include "daemon/report/log.h"
#include "daemon/run/fate.h"

typedef void waker(void *ctx);
typedef void ender(void *ctx, int code);

static struct {
    atomic_int word, signal, phase;
    _Atomic uint64_t since;                               /* when the word was set; 0: it is not */
    _Atomic(const char *) doing;                          /* NULL: what the phase is called */
    sem_t came;                                           /* posted when the word was set */
    int patience_ms;
    pid_t launcher;                                       /* 0: there is none */
    atomic_bool trains;                                   /* then: */
    _Atomic uint64_t saved;
    atomic_bool orphan;                                   /* a signal came, and the launcher was gone */
    pthread_mutex_t lock;
    struct cause first;
    atomic_uint asked;
    _Atomic(waker *) wake;
    _Atomic(void *) wake_ctx;
    atomic_int waking;                                    /* handlers that may call it just now */
    _Atomic(ender *) end;
    _Atomic(void *) end_ctx;
} fate = {.lock = PTHREAD_MUTEX_INITIALIZER, .first.who = FATE_NOBODY};

atomic_int *fate_word(void) { return &fate.word; }
uint64_t fate_since(void) { return atomic_load(&fate.since); }

/* ---- phases ------------------------------------------------------------------------------------------------------ */

void fate_phase(enum fate_phase p, const char *doing)
{
    atomic_store(&fate.phase, (int)p);
    atomic_store(&fate.doing, doing);
}

enum fate_phase fate_phase_now(void) { return (enum fate_phase)atomic_load(&fate.phase); }

const char *fate_doing(void)
{
    static const char *const name[] = {[FATE_START] = "starting", [FATE_STEP] = NULL,
                                       [FATE_EVALUATION] = "evaluating",
                                       [FATE_END] = "ending"};
    const char *doing = atomic_load(&fate.doing);
    return doing ? doing : name[fate_phase_now()];
}

bool fate_elsewhere(void)
{
    enum fate_phase now = fate_phase_now();
    return atomic_load(&fate.doing) || now == FATE_START || now == FATE_END;
}

/* ---- the cause --------------------------------------------------------------------------------------------------- */

/* What the kernel sends when the launcher dies. A signal of its own: SIGTERM comes from launchers that live, too, and
 * when the thread that made this process dies first, the launcher still has its number for a moment. */
static int orphaned(void) { return SIGRTMIN + 1; }
static bool launcher_gone(int number) { return number == orphaned() || (fate.launcher && getppid() != fate.launcher); }

static void word_set(int code)
{
    uint64_t never = 0;
    int none = 0;
    atomic_compare_exchange_strong(&fate.since, &never, clock_ns());
    if (atomic_compare_exchange_strong(&fate.word, &none, code)) sem_post(&fate.came);
}

void fate_set_of(int who, int code, const char *text)
{
    pthread_mutex_lock(&fate.lock);
    if (!fate.first.code || (fate.first.code == E_STOPPED && code != E_STOPPED)) {
        fate.first.code = code;
        fate.first.who = who;
        snprintf(fate.first.text, sizeof fate.first.text, "%s", text);
    }
    pthread_mutex_unlock(&fate.lock);
    word_set(code);
}

void fate_set(int code, const char *text) { fate_set_of(FATE_NOBODY, code, text); }

int fate_who(void)
{
    pthread_mutex_lock(&fate.lock);
    int who = fate.first.who;
    pthread_mutex_unlock(&fate.lock);
    return who;
}

void fate_saved(uint64_t step)
{
    atomic_store(&fate.saved, step);
    atomic_store(&fate.trains, true);
}

/* What is left of a run that a signal ends. */
static const char *left_text(char *buf, size_t n)
{
    uint64_t step = atomic_load(&fate.saved);
    *buf = '\0';
    if (!atomic_load(&fate.trains)) return buf;
    if (step) snprintf(buf, n, "; --resume continues from checkpoints/step-%08llu", (unsigned long long)step);
    else snprintf(buf, n, "; there is no checkpoint, so --resume would start anew");
    return buf;
}

/* Another rank that was stopped knows of no checkpoint. Ranks that are threads of this process do. */
static void left_add(struct err *e)
{
    char left[100];
    size_t n = strlen(e->text);
    if (!strstr(e->text, left_text(left, sizeof left))) snprintf(e->text + n, sizeof e->text - n, "%s", left);
}

bool fate_get(struct err *e)
{
    char left[100];
    pthread_mutex_lock(&fate.lock);
    e->code = fate.first.code;
    memcpy(e->text, fate.first.text, sizeof e->text);
    pthread_mutex_unlock(&fate.lock);
    if (e->code == E_STOPPED) left_add(e);
    int number = atomic_load(&fate.signal);
    if (!e->code && number && (atomic_load(&fate.orphan) || launcher_gone(number)))   /* nobody asked for that */
        err_set(e, E_DEVICE, "the launcher, process %d, exited; the running step is discarded%s",
                (int)fate.launcher, left_text(left, sizeof left));
    const char *doing = fate_doing();
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
    _exit(atomic_load(&fate.word));
}

void fate_end_by(void (*end)(void *ctx, int code), void *ctx)
{
    if (end) atomic_store(&fate.end_ctx, ctx);
    atomic_store(&fate.end, end);
}

/* Printing may block, and so may the library that ends the job. */
_Noreturn void fate_end(void)
{
    struct sigaction late = {.sa_handler = on_alarm};
    struct err e = {0};
    sigaction(SIGALRM, &late, NULL);
    alarm(DEADLINE_PRINT / 1000);
    fate_get(&e);
    log_error(e.code, e.text);
    ender *end = atomic_load(&fate.end);
    if (end) end(atomic_load(&fate.end_ctx), e.code);
    _exit(e.code);
}

/* The main thread may be busy for minutes without looking at the word: in a search, a library's set-up, a read from a
 * dead server. Then only this thread can end the process. */
static void *watch(void *arg)
{
    (void)arg;
    while (sem_wait(&fate.came)) continue;
    bool soon = atomic_load(&fate.signal) || fate_phase_now() == FATE_START;
    int ms = soon ? fate.patience_ms : DEADLINE_PROCESS_FAIL;
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
    fate_end();
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* Handlers run in the watching thread alone, which began before this: the caller and all threads that it makes block
 * what it hears. oneDNN's matrix products use the stack pointer as a pointer into their workspace, so that the frame of
 * a handler that interrupts one would be written over whatever lies before it in memory. */
static void leave_to_watch(const int *which, size_t n)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < n; i++) sigaddset(&set, which[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* A second signal may follow, which does not make a launcher's death somebody's wish. */
static void on_signal(int number)
{
    if (launcher_gone(number)) atomic_store(&fate.orphan, true);
    atomic_store(&fate.signal, number);
    word_set(E_STOPPED);
}

static void on_ask(int number)
{
    int saved = errno;
    atomic_fetch_or(&fate.asked, number == SIGUSR1 ? FATE_ASK_CHECKPOINT_AND_STOP
                                 : number == SIGUSR2 ? FATE_ASK_CHECKPOINT : FATE_ASK_REOPEN_LOG);
    atomic_fetch_add(&fate.waking, 1);
    waker *wake = atomic_load(&fate.wake);
    if (wake) wake(atomic_load(&fate.wake_ctx));
    atomic_fetch_sub(&fate.waking, 1);
    errno = saved;
}

void fate_hear(void)
{
    static const int which[] = {SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction ask = {.sa_handler = on_ask, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) sigaction(which[i], &ask, NULL);
    leave_to_watch(which, sizeof which / sizeof *which);
}

unsigned fate_asked(void) { return atomic_exchange(&fate.asked, 0); }

void fate_wake(void (*wake)(void *ctx), void *ctx)
{
    if (wake) atomic_store(&fate.wake_ctx, ctx);
    atomic_store(&fate.wake, wake);
    /* a handler in another thread may have found the one before; handlers cannot take locks */
    while (!wake && atomic_load(&fate.waking)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

void fate_begin(int patience_ms)
{
    static const int which[] = {SIGTERM, SIGINT, SIGALRM};
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    fate.patience_ms = patience_ms;
    sem_init(&fate.came, 0, 0);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    else _exit(log_error(E_OS, "cannot create a thread (ulimit -u, ulimit -v)"));
    leave_to_watch(which, sizeof which / sizeof *which);
}

void fate_ignore(void)
{
    static const int which[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) signal(which[i], SIG_IGN);
}

void fate_launched(void)
{
    int which[] = {orphaned()};
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    fate.launcher = getppid();
    sigaction(*which, &stop, NULL);
    leave_to_watch(which, 1);
    prctl(PR_SET_PDEATHSIG, *which);
}

void fate_let_kill(void)
{
    signal(SIGTERM, SIG_DFL);
    signal(orphaned(), SIG_DFL);
}
