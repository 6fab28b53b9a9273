/* The abort word, signals, the first failure. */
#include "config.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "daemon/doom.h"

static struct {
    atomic_int word, signal;
    pthread_mutex_t lock;
    struct err first;
} doom = {.lock = PTHREAD_MUTEX_INITIALIZER};

atomic_int *doom_word(void) { return &doom.word; }

static void on_signal(int number)
{
    int none = 0;
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
    if (!e->code && number)
        err_set(e, E_STOPPED, "stopped by SIG%s; the running step is discarded", sigabbrev_np(number));
    return e->code != 0;
}
