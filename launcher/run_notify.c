/* The command's NOTIFY_SOCKET is mpstage-run's. It reads the command's progress there and passes it on to the service
 * manager, if there is one (sd_notify(3)). Keys that are not systemd's begin with X_MPSTAGED_ (mpstaged(8)).
 *
 * STOPPING=1 is not passed on: the command ends, but it may be restarted. During a restart the manager's watchdog must
 * wait, which has been running since the first start was ready. So the time that the command requests for its start is
 * passed to the watchdog. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "run.h"

/* Finds the service manager's address, from the environment. */
static void manager_find(struct words *w)
{
    const char *name = getenv("NOTIFY_SOCKET");
    const char *watchdog = getenv("WATCHDOG_USEC");
    w->out = -1;
    w->watched = watchdog && strtoull(watchdog, NULL, 10);
    if (!name || address_parse_unix(name, &w->to)) return;
    w->out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* The socket has an abstract name, which the system chooses and which leaves nothing behind. Any user may write to it,
 * so the sender is checked. */
int words_open(struct words *w, struct err *e)
{
    struct sockaddr_un mine = {.sun_family = AF_UNIX};
    socklen_t n = sizeof mine;
    int on = 1;
    *w = (struct words){.committed = -1, .resumed = -1, .failed = -1, .out = -1};
    w->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->fd < 0 || bind(w->fd, (struct sockaddr *)&mine, sizeof mine.sun_family) ||
        setsockopt(w->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) ||
        getsockname(w->fd, (struct sockaddr *)&mine, &n))
        return err_set(e, E_OS, "cannot make a socket: %s", strerror(errno));
    size_t length = n - offsetof(struct sockaddr_un, sun_path);
    memcpy(w->name, mine.sun_path, length);
    w->name[0] = '@';
    manager_find(w);
    return 0;
}

void words_begin(struct words *w)
{
    w->spoke = w->ready = w->advanced = false;
    w->resumed = w->failed = -1;
    free(w->run);
    w->run = NULL;
    w->last = clock_ns();
}

void words_report(const struct words *w, const char *text)
{
    if (w->out >= 0) sendto(w->out, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&w->to.at, w->to.n);
}

void words_patience(const struct words *w, double seconds)
{
    char line[64];
    snprintf(line, sizeof line, "WATCHDOG_USEC=%.0f", seconds * 1e6);
    if (w->watched && w->was_ready) words_report(w, line);
}

/* Whether line is KEY=NUMBER. */
static bool number_of(const char *line, const char *key, long long *value)
{
    size_t n = strlen(key);
    char *end;
    if (strncmp(line, key, n) || line[n] != '=') return false;
    errno = 0;
    long long v = strtoll(line + n + 1, &end, 10);
    if (end == line + n + 1 || *end || errno || v < 0) return false;
    *value = v;
    return true;
}

/* Takes one line of a message. True: it must be passed on. */
static bool line_take(struct words *w, const char *line)
{
    static const char run[] = "X_MPSTAGED_RUN=";
    long long step, us, code;
    if (!strncmp(line, run, sizeof run - 1)) free(w->run), w->run = mem_strdup(line + sizeof run - 1);
    if (!strcmp(line, "READY=1")) w->ready = w->was_ready = true;
    if (!w->ready && number_of(line, "EXTEND_TIMEOUT_USEC", &us)) words_patience(w, (double)us * 1e-6);
    if (number_of(line, "X_MPSTAGED_FAILED", &code) && code > 0 && code < 256) {
        w->failed = code;
        w->failed_at = clock_ns();
    }
    if (number_of(line, "X_MPSTAGED_CHECKPOINT", &step) && step > w->committed) {
        w->committed = step;
        w->advanced = true;
    }
    if (number_of(line, "X_MPSTAGED_RESUMED", &step)) {
        w->resumed = step;
        if (step < w->committed)
            run_say("the command resumed from step %lld, although step %lld was saved", step, w->committed);
        else w->committed = step;
    }
    return strcmp(line, "STOPPING=1") != 0;
}

static void message_take(struct words *w, char *text)
{
    struct text on = {0};
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (line_take(w, line)) text_add(&on, "%s%s", on.n ? "\n" : "", line);
    if (on.n) words_report(w, on.s);
    text_free(&on);
    w->spoke = true;
    w->last = clock_ns();
}

/* Whether a message comes from this user or from root. */
static bool is_trusted(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
            c->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(c), sizeof who);
            return who.uid == geteuid() || who.uid == 0;
        }
    return false;
}

void words_take(struct words *w)
{
    char text[16384];
    union { char space[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } control;
    for (;;) {
        struct iovec part = {text, sizeof text - 1};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
        ssize_t n = recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return;
        text[n] = 0;
        if (!(m.msg_flags & MSG_TRUNC) && is_trusted(&m)) message_take(w, text);
    }
}
