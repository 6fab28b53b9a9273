/* Log lines, progress line, and the one error line. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>
#include "base/clock.h"
#include "daemon/log.h"

static struct { bool quiet; int fd; atomic_bool said, progress; } out = {.fd = -1};

void log_quiet(bool quiet) { out.quiet = quiet; }

int log_file(int dirfd, struct err *e)
{
    out.fd = openat(dirfd, "mpstaged.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return out.fd < 0 ? err_set(e, E_CANTCREAT, "mpstaged.log: %s", strerror(errno)) : 0;
}

/* A log that cannot be written (disk full, reader gone) must not stop the training. */
static void put(int fd, const char *s, size_t n)
{
    ssize_t k = write(fd, s, n);
    (void)k;
}

static void put_line(const char *line, size_t n)
{
    if (out.quiet) return;
    if (atomic_exchange(&out.progress, false)) put(STDERR_FILENO, "\r\033[K", 4);
    put(STDERR_FILENO, line, n);
    if (out.fd < 0) return;
    char when[32], full[1200];
    int k = snprintf(full, sizeof full, "%s %.*s", clock_rfc3339(when), (int)n, line);
    put(out.fd, full, k < (int)sizeof full ? (size_t)k : sizeof full - 1);
}

static void put_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void put_format(const char *fmt, ...)
{
    char line[1100];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n';
    put_line(line, (size_t)n);
}

void log_line(const char *fmt, ...)
{
    char line[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    put_format("%s", line);
}

void log_progress(const char *line)
{
    char buf[300];
    int n = snprintf(buf, sizeof buf, "\r\033[K%s", line);
    if (out.quiet || n < 0) return;
    atomic_store(&out.progress, true);
    put(STDERR_FILENO, buf, n < (int)sizeof buf ? (size_t)n : sizeof buf - 1);
}

int log_error(int code, const char *text)
{
    if (!atomic_exchange(&out.said, true)) put_format("mpstaged: %s", text);
    return code;
}
