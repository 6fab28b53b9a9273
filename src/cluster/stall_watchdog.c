/* A child that watches its parent. */
#include "config.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/proc.h"
#include "cluster/stall_watchdog.h"

enum { LOOK_MS = 100, AWAY_NS = 1000000000 };
struct watched { _Atomic uint64_t beats, limit_ns, stood_ns; };
static struct watched *shared;

/* Whether a signal, and not a debugger, has stopped the process. */
static bool is_stopped(pid_t pid)
{
    struct proc p;
    return proc_read(pid, &p) && p.state == 'T';
}

static _Noreturn void watch_parent(pid_t parent)
{
    uint64_t beats = 0, since = clock_ns(), before = since;
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        if (getppid() != parent) _exit(0);
        uint64_t now = clock_ns(), limit = atomic_load(&shared->limit_ns), seen = atomic_load(&shared->beats);
        bool away = now - before > AWAY_NS;
        before = now;
        if (away || seen != beats || !limit || !is_stopped(parent)) since = now;
        beats = seen;
        if (!limit || now - since <= limit) continue;
        atomic_store(&shared->stood_ns, now - since);
        kill(parent, SIGCONT);
        since = now;
    }
}

/* Closes all files, so that readers of the parent's output see when that ends. */
static _Noreturn void child(pid_t parent)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "mpstaged-watch");
    close_range(0, ~0u, 0);
    if (chdir("/")) _exit(0);
    watch_parent(parent);
}

void watchdog_begin(void)
{
    pid_t me = getpid();
    void *p = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    shared = p;
    if (fork() == 0) child(me);
}

void watchdog_limit(uint64_t limit_ns) { if (shared) atomic_store(&shared->limit_ns, limit_ns); }

uint64_t watchdog_beat(void)
{
    if (!shared) return 0;
    atomic_fetch_add(&shared->beats, 1);
    return atomic_exchange(&shared->stood_ns, 0);
}
