/* The abort word, signals, the first failure. */
#include "config.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "daemon/doom.h"

enum { ALONE_S = 2 };                                     /* to end in good order when the launcher is gone */

static struct {
    atomic_int word, signal;
    pid_t launcher;                                       /* 0: there is none */
    pthread_mutex_t lock;
    struct err first;
} doom = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_int *doom_word(void) { return &doom.word; }

static bool launcher_gone(void) { return doom.launcher && getppid() != doom.launcher; }

/* Nobody else ends a rank that waits for one that is gone. */
static void on_alarm(int number)
{
    (void)number;
    if (launcher_gone()) _exit(E_STOPPED);
}

/* The signal for the launcher's end comes while it ends: whether it is gone shows later. */
static void on_signal(int number)
{
    int none = 0;
    if (doom.launcher) alarm(ALONE_S);
    atomic_store(&doom.signal, number);
    atomic_compare_exchange_strong(&doom.word, &none, E_STOPPED);
}

void doom_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    sigaction(SIGUSR1, &ignore, NULL);
    sigaction(SIGUSR2, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

void doom_launched(void)
{
    struct sigaction late = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &late, NULL);
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
    int none = 0;
    atomic_compare_exchange_strong(&doom.word, &none, code);
}

bool doom_get(struct err *e)
{
    pthread_mutex_lock(&doom.lock);
    *e = doom.first;
    pthread_mutex_unlock(&doom.lock);
    int number = atomic_load(&doom.signal);
    if (!e->code && number && launcher_gone())
        err_set(e, E_STOPPED, "the launcher, process %d, is gone; the running step is discarded", (int)doom.launcher);
    else if (!e->code && number)
        err_set(e, E_STOPPED, "stopped by SIG%s; the running step is discarded", sigabbrev_np(number));
    return e->code != 0;
}
