/* Requests and answers over the control socket, each with a time limit. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/proc.h"
#include "ctl_call.h"

enum heard { HEARD, SILENT, CLOSED, NONSENSE };

static uint64_t limit(void) { return clock_ns() + CALL_SECONDS * UINT64_C(1000000000); }

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

int call_open(struct call *c, const char *dir, struct err *e)
{
    *c = (struct call){.dir = dir, .at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .fd = -1};
    if (c->at >= 0) return 0;
    if (errno == ENOTDIR) return err_set(e, E_DEVICE, "%s: is not a run directory", dir);
    return err_set(e, errno == ENOENT ? E_DEVICE : E_PERM, "%s: %s", dir, strerror(errno));
}

static void hang_up(struct call *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->n = 0;
    c->asked = false;
}

void call_close(struct call *c)
{
    hang_up(c);
    if (c->at >= 0) close(c->at);
    free(c->in);
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static ssize_t file_read(int at, const char *name, char *buf, size_t size)
{
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;
    if (fd >= 0) close(fd);
    buf[n > 0 ? n : 0] = 0;
    return n;
}

/* Takes the owner's number from RUN/lock if it is a mpstaged on this machine: the owner may have exited or run
 * elsewhere. */
static void pid_of_lock(struct call *c)
{
    char owner[160];
    struct proc p;
    if (c->pid || file_read(c->at, "lock", owner, sizeof owner) <= 0) return;
    long pid = strtol(owner, NULL, 10);
    if (pid <= 0 || pid >= 1 << 30 || !proc_read((pid_t)pid, &p)) return;
    if (strcmp(p.name, "mpstaged") == 0) c->pid = (pid_t)pid;
}

bool call_stopped(const struct call *c)
{
    struct proc p;
    return c->pid > 0 && proc_read(c->pid, &p) && p.state == 'T';
}

static int no_answer(struct call *c, struct err *e)
{
    char who[40] = "the run";
    struct proc p;
    c->silent = true;
    pid_of_lock(c);
    char state = c->pid > 0 && proc_read(c->pid, &p) ? p.state : 0;
    if (c->pid > 0) snprintf(who, sizeof who, "process %d", (int)c->pid);
    return err_set(e, E_STOPPED, "%s: %s is not responding%s", c->dir, who,
                   state == 'T' ? ": it is stopped" : state == 't' ? ": a debugger has stopped it" : "");
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

/* Connects by the directory's descriptor, because a socket's name may have only 107 bytes. If the socket's queue is
 * full, this waits. */
static int socket_connect(struct call *c, uint64_t until)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control.sock", c->at);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) return errno;
    while (connect(c->fd, (struct sockaddr *)&to, sizeof to)) {
        if ((errno != EAGAIN && errno != EINTR) || clock_ns() >= until) return errno;
        nap();
    }
    return 0;
}

bool call_runs(struct call *c)
{
    int fd = openat(c->at, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool held = fd >= 0 && out_lock_is_held(fd);
    if (fd >= 0) close(fd);
    if (held) pid_of_lock(c);
    return held;
}

static int call_connect(struct call *c, uint64_t until, struct err *e)
{
    struct ucred who;
    socklen_t n = sizeof who;
    int bad = socket_connect(c, until);
    if (!bad) {
        c->met = true;
        if (!getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &n)) c->pid = who.pid;
        return 0;
    }
    hang_up(c);
    c->ended = bad == ENOENT || bad == ECONNREFUSED;
    if (c->ended && c->met) return err_set(e, E_DEVICE, "%s: the run has ended", c->dir);
    if (bad == ENOENT && call_runs(c)) {
        char owner[40] = "a process";
        c->ended = false;
        if (c->pid > 0) snprintf(owner, sizeof owner, "process %d", (int)c->pid);
        return err_set(e, E_DEVICE, "%s: %s runs there without a control socket: service.control is no, or the file "
                                    "system has no sockets; use signals, see mpstaged(8)", c->dir, owner);
    }
    bool log = !faccessat(c->at, "mpstaged.log", F_OK, 0);
    if (c->ended) return err_set(e, E_DEVICE, "%s: nothing is running there%s", c->dir,
                                 log ? "; mpstaged.log in it says how the last run ended" : "");
    if (bad == EAGAIN || bad == EINTR) return no_answer(c, e);
    return err_set(e, bad == EACCES ? E_PERM : E_INTERNAL, "%s/control.sock: %s", c->dir, strerror(bad));
}

/* Whether the connection is ready for `events` before `until`. This process may have been stopped, so a ready
 * connection counts even after `until`. */
static bool ready(const struct call *c, short events, uint64_t until)
{
    struct pollfd p = {.fd = c->fd, .events = events};
    for (;;) {
        uint64_t now = clock_ns();
        int n = poll(&p, 1, now < until ? (int)((until - now) / 1000000) + 1 : 0);
        if (n > 0) return true;
        if (n == 0 && clock_ns() >= until) return false;
    }
}

/* A lost connection is no failure yet: the other end may have sent the reason before. */
static enum heard request_send(struct call *c, const char *request, uint64_t until)
{
    for (size_t n = strlen(request), at = 0; at < n;) {
        if (!ready(c, POLLOUT, until)) { hang_up(c); return SILENT; }
        ssize_t k = send(c->fd, request + at, n - at, MSG_NOSIGNAL);
        if (k > 0) at += (size_t)k;
        else if (k < 0 && errno != EAGAIN && errno != EINTR) break;
    }
    c->asked = true;
    return HEARD;
}

static enum heard line_parse(struct call *c, const char *end, json_t **line)
{
    size_t used = (size_t)(end - c->in) + 1;
    *line = json_loadb(c->in, used, 0, NULL);
    memmove(c->in, c->in + used, c->n - used);
    c->n -= used;
    if (json_is_object(*line)) return HEARD;
    json_decref(*line);
    *line = NULL;
    return NONSENSE;
}

static enum heard line_take(struct call *c, uint64_t until, json_t **line)
{
    enum { LONGEST = 16 << 20, MORE = 65536 };
    for (size_t seen = 0;;) {
        const char *end = c->n > seen ? memchr(c->in + seen, '\n', c->n - seen) : NULL;
        if (end) return line_parse(c, end, line);
        if ((seen = c->n) > LONGEST) return NONSENSE;
        if (!ready(c, POLLIN, until)) return SILENT;
        if (c->cap - c->n < MORE) c->in = mem_resize(c->in, c->cap = 2 * c->cap + MORE);
        ssize_t k = recv(c->fd, c->in + c->n, c->cap - c->n, 0);
        if (k > 0) c->n += (size_t)k;
        else if (k == 0 || (errno != EAGAIN && errno != EINTR)) return CLOSED;
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int nonsense(const struct call *c, struct err *e)
{
    return err_set(e, E_INTERNAL, "%s: the answer is not JSON", c->dir);
}

static int judge(const struct call *c, json_t **answer, struct err *e)
{
    if (json_is_true(json_object_get(*answer, "ok"))) return 0;
    const char *error = json_string_value(json_object_get(*answer, "error"));
    json_int_t code = json_integer_value(json_object_get(*answer, "code"));
    err_set(e, code > 0 && code < 256 ? (int)code : E_PERM, "%s: %s", c->dir, error ? error : "refused");
    json_decref(*answer);
    *answer = NULL;
    return -1;
}

int call_ask(struct call *c, const char *request, json_t **answer, struct err *e)
{
    enum { TRIES = 5 };
    uint64_t until = limit();
    c->silent = c->ended = false;
    for (int i = 0; i < TRIES; i++) {
        if (i) nap();
        if (c->fd < 0 && call_connect(c, until, e)) return -1;
        enum heard h = c->asked ? HEARD : request_send(c, request, until);
        if (h == HEARD) h = line_take(c, until, answer);
        if (h == SILENT) return no_answer(c, e);
        c->asked = false;
        if (h == HEARD) return judge(c, answer, e);
        if (h == NONSENSE) return nonsense(c, e);
        hang_up(c);
    }
    return err_set(e, E_STOPPED, "%s: process %d closes its connections without an answer", c->dir, (int)c->pid);
}

int call_hear(struct call *c, json_t **line, struct err *e)
{
    c->silent = c->ended = false;
    switch (line_take(c, limit(), line)) {
    case HEARD: return 0;
    case SILENT: return no_answer(c, e);
    case NONSENSE: return nonsense(c, e);
    case CLOSED: break;
    }
    hang_up(c);
    return 1;
}
