/* The abort word, signals, the first failure. */
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
#include "daemon/report/log.h"
#include "daemon/run/doom.h"

static struct {
    atomic_int word, signal;
    _Atomic uint64_t since;                               /* when the word was set; 0: it is not */
    _Atomic(const char *) doing;                          /* NULL: a step */
    sem_t came;                                           /* posted when a signal has come */
    int patience_ms;
    pid_t launcher;                                       /* 0: there is none */
    pthread_mutex_t lock;
    struct err first;
} doom = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_int *doom_word(void) { return &doom.word; }
uint64_t doom_since(void) { return atomic_load(&doom.since); }
void doom_doing(const char *what) { atomic_store(&doom.doing, what); }

static bool launcher_gone(void) { return doom.launcher && getppid() != doom.launcher; }

static void word_set(int code)
{
    uint64_t never = 0;
    int none = 0;
    atomic_compare_exchange_strong(&doom.since, &never, clock_ns());
    atomic_compare_exchange_strong(&doom.word, &none, code);
}

static void on_signal(int number)
{
    atomic_store(&doom.signal, number);
    word_set(E_STOPPED);
    sem_post(&doom.came);
}

static void on_alarm(int number)
{
    (void)number;
    _exit(E_STOPPED);
}

/* The main thread may be busy for minutes without looking at the word: in a search, a library's set-up, a read from a
 * dead server. Then only this thread can end the process. */
static void *watch(void *arg)
{
    struct sigaction late = {.sa_handler = on_alarm};
    struct err e;
    (void)arg;
    while (sem_wait(&doom.came)) continue;
    nanosleep(&(struct timespec){.tv_nsec = doom.patience_ms * 1000000L}, NULL);
    sigaction(SIGALRM, &late, NULL);                      /* printing the error line may block */
    alarm(1);
    doom_get(&e);
    log_error(e.code, e.text);
    _exit(e.code);
}

void doom_signals(int patience_ms)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    doom.patience_ms = patience_ms;
    doom_doing("starting");
    sem_init(&doom.came, 0, 0);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    else _exit(log_error(E_OS, "cannot create a thread (ulimit -u)"));
}

void doom_ignore(void)
{
    static const int which[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) signal(which[i], SIG_IGN);
}

void doom_launched(void)
{
    doom.launcher = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
}

void doom_let_kill(void) { signal(SIGTERM, SIG_DFL); }

void doom_set(int code, const char *text)
{
    pthread_mutex_lock(&doom.lock);
    if (!doom.first.code || (doom.first.code == E_STOPPED && code != E_STOPPED)) {
        doom.first.code = code;
        snprintf(doom.first.text, sizeof doom.first.text, "%s", text);
    }
    pthread_mutex_unlock(&doom.lock);
    word_set(code);
}

bool doom_get(struct err *e)
{
    pthread_mutex_lock(&doom.lock);
    *e = doom.first;
    pthread_mutex_unlock(&doom.lock);
    int number = atomic_load(&doom.signal);
    if (!e->code && number && launcher_gone())
        err_set(e, E_STOPPED, "the launcher, process %d, is gone; the running step is discarded", (int)doom.launcher);
    const char *doing = atomic_load(&doom.doing);
    if (!e->code && number && doing) err_set(e, E_STOPPED, "stopped by SIG%s while %s", sigabbrev_np(number), doing);
    else if (!e->code && number)
        err_set(e, E_STOPPED, "stopped by SIG%s; the running step is discarded", sigabbrev_np(number));
    return e->code != 0;
}
