/* Log lines, progress line, and the one error line. */
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/out.h"
#include "base/text.h"
#include "daemon/report/log.h"
#include "daemon/report/screen.h"

static struct {
    bool quiet;
    struct out_records file;                              /* has a lock of its own, because the screen may be slow */
    pthread_mutex_t file_lock;
    atomic_int columns;                                   /* of the screen; 0: unknown */
    atomic_bool said;
    pthread_mutex_t lock;                                 /* guards what follows and what is on the screen */
    char progress[300];                                   /* what the progress line shows; "": none */
    unsigned missed;                                      /* lines since a reader stopped reading */
} out = {.file = {.fd = -1}, .lock = PTHREAD_MUTEX_INITIALIZER, .file_lock = PTHREAD_MUTEX_INITIALIZER};

void log_quiet(bool quiet) { out.quiet = quiet; }

int log_file(int dirfd, const char *dir, struct err *e)
{
    return out_records_open(&out.file, dirfd, dir, "mpstaged.log", e);
}

/* Gives up on errors: training goes on when a reader is gone. */
static void put(int fd, const char *s, size_t n)
{
    ssize_t k = write(fd, s, n);
    (void)k;
}

/* Whether standard error can take a line within wait_ms: a terminal may be stopped, a pipe full. */
static bool screen_takes(int wait_ms)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n;
    do n = poll(&p, 1, wait_ms); while (n < 0 && errno == EINTR);
    return n != 0;
}

/* Writes everything at once, because others may write to the same terminal. Waits for a reader that has stopped only
 * once and not for long, so that the run goes on and ends when it is told to. */
static void put_screen(const char *line, size_t n)
{
    enum { PATIENCE_MS = 500 };
    char full[2600], missed[80] = "";
    pthread_mutex_lock(&out.lock);
    if (!screen_takes(out.missed ? 0 : PATIENCE_MS)) out.missed++;
    else {
        if (out.missed)
            snprintf(missed, sizeof missed, "note: %u line%s not shown here: nobody read them\n", out.missed,
                     out.missed == 1 ? " was" : "s were");
        out.missed = 0;
        int k = snprintf(full, sizeof full, "%s%s%.*s%s", *out.progress ? "\r\033[K" : "", missed, (int)n, line,
                         out.progress);
        put(STDERR_FILENO, full, (size_t)k);
    }
    pthread_mutex_unlock(&out.lock);
}

/* screen: the line or lines for the terminal, with line ends; line: the same as one line for the log; last: it says how
 * the run ended */
static void put_line(const char *screen, const char *line, bool last)
{
    if (out.quiet) return;
    put_screen(screen, strlen(screen));
    if (out.file.fd < 0) return;
    char when[32], full[1200];
    int k = snprintf(full, sizeof full, "%s %s\n", clock_rfc3339(when), line);
    struct err none = {0};                                /* a log that cannot be written must not stop the training */
    pthread_mutex_lock(&out.file_lock);
    out_records_add(&out.file, full, k < (int)sizeof full ? (size_t)k : sizeof full - 1, last, &none);
    pthread_mutex_unlock(&out.file_lock);
}

/* Folds a line; what follows the first fold is indented to stand below the text after "note: ". */
static void fold(const char *line, int columns, char *buf, size_t size)
{
    const int INDENT = 6, LEAST = 40;
    size_t at = 0;
    if (columns < LEAST) columns = LEAST;
    for (int indent = 0; *line && at < size; indent = INDENT) {
        size_t n = text_line(line, columns - indent);
        at += (size_t)snprintf(buf + at, size - at, "%*s%.*s\n", indent, "", (int)n, line);
        line += n;
        line += strspn(line, " \n");
    }
}

void log_columns(int columns) { atomic_store(&out.columns, columns); }

void log_line(const char *fmt, ...)
{
    char given[1000], line[1000], folded[2000] = "\n";
    int columns = atomic_load(&out.columns);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(given, sizeof given, fmt, ap);
    va_end(ap);
    text_printable(given, line, sizeof line);             /* names in it may hold anything */
    fold(line, columns ? columns : SCREEN_COLUMNS, folded, sizeof folded);
    put_line(folded, line, false);
}

void log_lines(char *lines)
{
    char *save;
    for (char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) log_line("%s", line);
}

void log_progress(const char *line)
{
    char full[310];
    if (out.quiet) return;
    pthread_mutex_lock(&out.lock);
    bool same = !line || strcmp(line, out.progress) == 0 || (*line && atomic_load(&out.said)) || !screen_takes(0);
    if (!same || !line) text_printable(line ? line : "", out.progress, sizeof out.progress);
    if (!same) put(STDERR_FILENO, full, (size_t)snprintf(full, sizeof full, "\r\033[K%s", out.progress));
    pthread_mutex_unlock(&out.lock);
}

int log_error(int code, const char *text)
{
    if (atomic_exchange(&out.said, true)) return code;
    log_progress("");
    char given[1100], line[1100], screen[1101];
    snprintf(given, sizeof given, "mpstaged: %s", text);
    text_printable(given, line, sizeof line);
    snprintf(screen, sizeof screen, "%s\n", line);
    put_line(screen, line, true);
    return code;
}
