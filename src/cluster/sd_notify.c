/* Datagrams to the service manager. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/address.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/file.h"
#include "base/text.h"
#include "cluster/sd_notify.h"

/* The watchdog's time for the first step, in which libraries initialise, in times of the manager's; for all later
 * steps, in times of the slowest so far. A slow step is not a hang. OTHERS_TIMES: see notify_others. */
enum { FIRST_TIMES = 10, SLOWEST_TIMES = 5, OTHERS_TIMES = 4 };
static const struct notify_times USUAL = {.extend = DEADLINE_EXTEND, .tick = DEADLINE_EXTEND_LOOK, .least = 1000};

static struct {
    pthread_mutex_t lock;                                 /* guards all fields */
    int fd;                                               /* -1: no manager */
    struct address to;
    struct notify_times times;
    enum notify_work work;
    bool ready, stopping;
    uint64_t phase, alive, cpu, bytes;                    /* set-up: at the start of the phase, at the last tick */
    unsigned disk;                                        /* a set of enum notify_wait */
    uint64_t watchdog, wanted, slowest;            /* ns; given by the manager, requested last, slowest step. 0: none */
    uint64_t said;                                        /* when the last message about a step was sent */
    uint64_t fed;                                         /* when the watchdog's time began */
    bool any_checkpoint;
    uint64_t checkpoint;                                  /* the newest on disk */
} to = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static bool send_once(const char *s)
{
    ssize_t n;
    do n = sendto(to.fd, s, strlen(s), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&to.to.at, to.to.n);
    while (n < 0 && errno == EINTR);
    return n >= 0;
}

/* A full queue becomes free when the manager reads. poll does not report that for an unconnected socket. */
static void send_surely(const char *s)
{
    enum { TRIES = 50, MS = 20 };
    for (int i = 0; i < TRIES && !send_once(s) && (errno == EAGAIN || errno == ENOBUFS); i++) poll(NULL, 0, MS);
}

/* Ignores WATCHDOG_PID, because it is the launcher's. */
static uint64_t watchdog_given(void)
{
    const char *s = getenv("WATCHDOG_USEC");
    char *end;
    if (!s || *s < '0' || *s > '9') return 0;
    errno = 0;
    unsigned long long us = strtoull(s, &end, 10);
    return errno || *end || us > UINT64_MAX / 1000 / FIRST_TIMES ? 0 : us * 1000;
}

void notify_open(const struct notify_times *times)
{
    const char *name = getenv("NOTIFY_SOCKET");
    pthread_mutex_lock(&to.lock);
    if (to.fd < 0 && name && !address_parse_unix(name, &to.to)) {
        to.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        to.times = times ? *times : USUAL;
        to.work = NOTIFY_WAITS;
        to.ready = to.stopping = to.any_checkpoint = false;
        to.disk = 0;
        to.wanted = to.watchdog = watchdog_given();
        to.slowest = to.said = 0;
        to.phase = to.alive = clock_ns();
    }
    pthread_mutex_unlock(&to.lock);
}

void notify_close(void)
{
    pthread_mutex_lock(&to.lock);
    if (to.fd >= 0) close(to.fd);
    to.fd = -1;
    pthread_mutex_unlock(&to.lock);
}

/* Takes the lock and returns true if there is a manager. */
static bool begin(void)
{
    pthread_mutex_lock(&to.lock);
    if (to.fd >= 0) return true;
    pthread_mutex_unlock(&to.lock);
    return false;
}

static void end(void) { pthread_mutex_unlock(&to.lock); }

static void lines_send(struct text *t, bool surely)
{
    if (surely) send_surely(t->s);
    else send_once(t->s);
    text_free(t);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

static void extend_add(struct text *t, uint64_t ns)
{
    uint64_t least = to.times.extend * UINT64_C(1000000);
    text_add(t, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)((ns > least ? ns : least) / 1000));
}

void notify_phase(const char *doing, enum notify_work work)
{
    struct text t = {0};
    if (!begin()) return;
    to.work = work;
    to.phase = to.alive = clock_ns();
    to.cpu = clock_process_ns();
    to.bytes = file_bytes();
    if (doing && !to.ready) {
        text_add(&t, "STATUS=%s\n", doing);
        extend_add(&t, 0);
        lines_send(&t, true);
    }
    end();
}

void notify_others(void)
{
    struct text t = {0};
    if (!begin()) return;
    uint64_t took = OTHERS_TIMES * (clock_ns() - to.phase);
    to.work = NOTIFY_WAITS;
    if (!to.ready && took > to.times.extend * UINT64_C(1000000)) {
        extend_add(&t, took);
        lines_send(&t, true);
    }
    end();
}

/* A phase that computes takes most of a core; one that hangs leaves only the little that other threads take. Reading
 * from a slow disk takes no CPU time, and MPI takes CPU time while it waits. */
static bool gets_on(uint64_t ns)
{
    if (to.work != NOTIFY_WAITS && file_bytes() != to.bytes) return true;
    return to.work == NOTIFY_COMPUTES && clock_process_ns() - to.cpu >= ns / 100;
}

void notify_alive(void)
{
    struct text t = {0};
    if (!begin()) return;
    uint64_t now = clock_ns();
    if (now - to.alive >= to.times.tick * UINT64_C(1000000)) {
        if (!to.ready && gets_on(now - to.alive)) {
            extend_add(&t, 0);
            lines_send(&t, false);
        }
        to.alive = now;
        to.cpu = clock_process_ns();
        to.bytes = file_bytes();
    }
    end();
}

/* A newline in the name would end the line of the protocol, so such a name is left out. */
static void run_add(const char *dir, struct text *t)
{
    char *full = realpath(dir, NULL);
    if (full && !strchr(full, '\n')) text_add(t, "\nX_MPSTAGED_RUN=%s", full);
    free(full);
}

static void watchdog_want(uint64_t ns, struct text *t)
{
    if (!to.watchdog || to.stopping || ns == to.wanted) return;
    to.wanted = ns;
    text_add(t, "\nWATCHDOG_USEC=%llu", (unsigned long long)(ns / 1000));
}

void notify_ready(const char *dir)
{
    struct text t = {0};
    if (!begin()) return;
    to.ready = true;
    text_add(&t, "READY=1\nSTATUS=the first step is running");
    to.fed = clock_ns();
    run_add(dir, &t);
    watchdog_want(FIRST_TIMES * to.watchdog, &t);
    lines_send(&t, true);
    end();
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void checkpoint_add(struct text *t)
{
    if (to.any_checkpoint) text_add(t, ", checkpoint %llu", (unsigned long long)to.checkpoint);
}

static void status_add(const char *before, struct notify_status how_far, struct text *t)
{
    text_add(t, "STATUS=%s", before);
    how_far.add(how_far.ctx, t);
    checkpoint_add(t);
}

/* Often enough for the watchdog, but not for each of thousands of steps a second. */
static bool due(uint64_t now)
{
    uint64_t every = to.times.least * UINT64_C(1000000);
    if (to.watchdog && to.watchdog / SLOWEST_TIMES < every) every = to.watchdog / SLOWEST_TIMES;
    if (to.said && now - to.said < every) return false;
    to.said = to.fed = now;
    return true;
}

/* While the run stops, a step's message requests more time instead: the manager's time for stopping is running. */
void notify_step(uint64_t took_ns, struct notify_status how_far)
{
    struct text t = {0};
    if (!begin()) return;
    bool slower = took_ns > to.slowest;
    if (slower) to.slowest = took_ns;
    uint64_t want = SLOWEST_TIMES * to.slowest;
    if (due(clock_ns()) || (slower && want > to.wanted)) {
        if (to.stopping) extend_add(&t, want);
        else status_add("", how_far, &t);
        text_add(&t, "\nWATCHDOG=1");
        watchdog_want(want > to.watchdog ? want : to.watchdog, &t);
        lines_send(&t, false);
    }
    end();
}

void notify_disk(enum notify_wait what, bool on)
{
    if (!begin()) return;
    to.disk = on ? to.disk | what : to.disk & ~(unsigned)what;
    end();
}

/* Acts in time for the watchdog, and late enough that a stopped rank already counts as silent. */
void notify_poll(bool all_heard)
{
    struct text t = {0};
    if (!begin()) return;
    bool late = to.wanted && clock_ns() - to.fed >= to.wanted / 2;
    if (to.ready && to.disk && all_heard && late && to.wanted < DEADLINE_NS(DEADLINE_WATCHED)) {
        watchdog_want(DEADLINE_NS(DEADLINE_WATCHED), &t);
        if (t.n) send_surely(t.s + 1);                    /* without the newline before it */
        text_free(&t);
    }
    end();
}

void notify_paused(struct notify_status how_far)
{
    struct text t = {0};
    if (!begin()) return;
    if (due(clock_ns())) {
        status_add("paused after ", how_far, &t);
        text_add(&t, "\nWATCHDOG=1");
        lines_send(&t, false);
    }
    end();
}

void notify_resumed(uint64_t step)
{
    struct text t = {0};
    if (!begin()) return;
    to.any_checkpoint = true;
    to.checkpoint = step;
    text_add(&t, "X_MPSTAGED_RESUMED=%llu", (unsigned long long)step);
    lines_send(&t, true);
    end();
}

void notify_checkpoint(uint64_t step)
{
    struct text t = {0};
    if (!begin()) return;
    to.any_checkpoint = true;
    to.checkpoint = step;
    text_add(&t, "X_MPSTAGED_CHECKPOINT=%llu", (unsigned long long)step);
    lines_send(&t, true);
    end();
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* From here on the manager's time for stopping counts, not the watchdog's: files are written, and no step ends. */
void notify_stopping(const char *doing)
{
    struct text t = {0};
    if (!begin()) return;
    if (!to.stopping) {
        text_add(&t, "STOPPING=1\nSTATUS=%s\n", doing);
        extend_add(&t, SLOWEST_TIMES * to.slowest);
        watchdog_want(0, &t);
        to.stopping = true;
        lines_send(&t, false);
    }
    end();
}

void notify_failed(int code, const char *text)
{
    struct text t = {0};
    char clean[1000];
    if (!begin()) return;
    text_add(&t, "STATUS=failed: %s\nX_MPSTAGED_FAILED=%d", text_printable(text, clean, sizeof clean), code);
    lines_send(&t, true);
    end();
}
