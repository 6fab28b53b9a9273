/* Log lines, progress line, and the one error line. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/out.h"
#include "base/text.h"
#include "cluster/thread_liveness.h"
#include "cluster/log.h"
#include "cluster/terminal.h"

/* LINE: bytes of a line; SCREEN: bytes of a line as shown, folded, with the text around it. */
enum { LINE = 1000, SCREEN = 2600 };

static struct {
    atomic_bool quiet;
    bool journal;
    struct out_records file;                              /* has its own lock, because the screen may be slow */
    pthread_mutex_t file_lock;
    int dir;                                              /* of the file */
    unsigned lost;                                        /* lines since writing to the file failed */
    char why[300];                                        /* why writing failed */
    atomic_bool reopen;                                   /* SIGHUP came */
    atomic_int columns;                                   /* of the screen; 0: unknown */
    atomic_int level;                                     /* less severe lines are left out */
    atomic_bool said;
    _Atomic(log_listener *) failed;                         /* see log_failed */
    pthread_mutex_t lock;                                 /* guards the screen and the fields below */
    struct out_stream screen;
    char rest[SCREEN]; size_t n_rest;                     /* the part of a line that the screen did not take */
    char progress[300];                                   /* the progress line on the screen; "": none */
    unsigned missed;                                      /* lines dropped since a reader stopped reading */
} out = {.file = {.fd = -1}, .dir = -1, .level = LEVEL_INFO, .screen = {.fd = STDERR_FILENO},
         .lock = PTHREAD_MUTEX_INITIALIZER, .file_lock = PTHREAD_MUTEX_INITIALIZER};

void log_failed(log_listener *hear) { atomic_store(&out.failed, hear); }
void log_quiet(bool quiet) { atomic_store(&out.quiet, quiet); }
bool log_is_quiet(void) { return atomic_load(&out.quiet); }
void log_journal(bool journal) { out.journal = journal; }

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static const char file_name[] = "mpstaged.log";

void log_reopen(void) { atomic_store(&out.reopen, true); }

int log_file(int dirfd, const char *dir, struct err *e)
{
    bool had;
    if (out_records_append(&out.file, dirfd, dir, file_name, &had, e)) return -1;
    out.dir = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    if (out.dir < 0) return err_set(e, E_OS, "%s: %s", dir, strerror(errno));
    return 0;
}

static int file_line(const char *line, bool last, struct err *e)
{
    char when[32], full[LINE + 200];
    int k = snprintf(full, sizeof full, "%s %s\n", clock_rfc3339(when), line);
    return out_records_add(&out.file, full, k < (int)sizeof full ? (size_t)k : sizeof full - 1, last, e);
}

/* If the log cannot be written, training continues: the lost lines are counted. */
static void file_put(const char *line, bool last)
{
    char note[LINE];
    struct err e = {0};
    if (out.lost && !last) {
        snprintf(note, sizeof note, "warning: %u line%s lost: %s", out.lost, out.lost == 1 ? " is" : "s are", out.why);
        if (file_line(note, false, &e) == 0) out.lost = 0;
    }
    if ((!out.lost || last) && file_line(line, last, &e) == 0) return;
    out.lost++;
    snprintf(out.why, sizeof out.why, "%s", e.text);
}

/* Called with file_lock held. Returns false, with why, if the file could not be opened; the old one stays in use. */
static bool file_reopen(struct err *e)
{
    if (out.file.fd < 0 || !atomic_exchange(&out.reopen, false)) return true;
    return out_records_reopen(&out.file, out.dir, file_name, e) == 0;
}

/* ---- the screen -------------------------------------------------------------------------------------------------- */

/* Whether standard error can take a line within wait_ms: a terminal may be stopped, a pipe full. */
static bool screen_takes(int wait_ms)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n;
    do n = poll(&p, 1, wait_ms); while (n < 0 && errno == EINTR);
    return n != 0;
}

/* Writes the rest of the previous line, then this line. Never waits. False: nothing of this line was written. The rest
 * of a partly written line goes before the next one. */
static bool screen_put(const char *s, size_t n)
{
    ssize_t k = out.n_rest ? out_stream_write(&out.screen, out.rest, out.n_rest) : 0;
    if (k < 0) out.n_rest = 0;                            /* the reader has closed its end */
    else if (k > 0) memmove(out.rest, out.rest + k, out.n_rest -= (size_t)k);
    if (out.n_rest || k < 0) return false;
    k = out_stream_write(&out.screen, s, n);
    if (k <= 0) return false;
    out.n_rest = n - (size_t)k;
    memcpy(out.rest, s + k, out.n_rest);
    return true;
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

static const char *const level_names[LOG_LEVELS] = {"error", "warning", "note", "info", "debug"};

const char *log_level_name(enum log_level level) { return level_names[level]; }

int log_level_of(const char *name)
{
    for (int i = 0; i < LOG_LEVELS; i++) if (strcmp(level_names[i], name) == 0) return i;
    return -1;
}

enum log_level log_level_text(const char *line)
{
    size_t n = strcspn(line, ": ");
    for (int i = 0; i < LOG_LEVELS && line[n] == ':'; i++)
        if (strlen(level_names[i]) == n && memcmp(level_names[i], line, n) == 0) return (enum log_level)i;
    return LEVEL_INFO;
}

void log_level_set(enum log_level level) { atomic_store(&out.level, (int)level); }
enum log_level log_level(void) { return (enum log_level)atomic_load(&out.level); }

/* The prefix of a line on stderr. */
static const char *priority(enum log_level level)
{
    static const char *const of[LOG_LEVELS] = {"<3>", "<4>", "<5>", "<6>", "<7>"};
    return out.journal ? of[level] : "";
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Writes everything in one call, because others may write to the same terminal. Waits only once, and briefly, for a
 * reader that has stopped, so that the run continues, and ends on request. */
static void put_screen(const char *line, size_t n)
{
    char full[SCREEN], missed[80] = "";
    pthread_mutex_lock(&out.lock);
    if (out.missed)
        snprintf(missed, sizeof missed, "note: %u line%s not shown: the output was not read\n", out.missed,
                 out.missed == 1 ? " was" : "s were");
    int k = snprintf(full, sizeof full, "%s%s%.*s%s", *out.progress ? "\r\033[K" : "", missed, (int)n, line,
                     out.progress);
    bool shown = screen_takes(out.missed ? 0 : DEADLINE_SCREEN) && screen_put(full, (size_t)k);
    out.missed = shown ? 0 : out.missed + 1;
    pthread_mutex_unlock(&out.lock);
}

/* Prints a warning about the file, on the screen only. */
static void file_complain(const char *text)
{
    char line[LINE];
    int n = snprintf(line, sizeof line, "warning: %s\n", text);
    put_screen(line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* screen: the line or lines for the terminal, with line ends; line: the same as one line for the log; last: it is the
 * line about how the run ended */
static void put_line(const char *screen, const char *line, bool last)
{
    struct err e = {0};
    if (out.quiet) return;
    put_screen(screen, strlen(screen));
    if (out.file.fd < 0) return;
    const char *at = liveness_wait_file(file_name);
    pthread_mutex_lock(&out.file_lock);
    bool kept = file_reopen(&e);
    unsigned before = out.lost;
    file_put(line, last);
    bool new_loss = out.lost && !before;
    if (new_loss) snprintf(e.text, sizeof e.text, "%.*s; lines are lost", (int)sizeof out.why, out.why);
    pthread_mutex_unlock(&out.file_lock);
    liveness_wait_file(at);
    if (!kept || new_loss) file_complain(e.text);
}

void log_tick(void)
{
    struct err e = {0};
    const char *at = liveness_wait_file(file_name);
    pthread_mutex_lock(&out.file_lock);
    bool kept = file_reopen(&e);
    pthread_mutex_unlock(&out.file_lock);
    liveness_wait_file(at);
    if (!kept) file_complain(e.text);
}

/* Folds a line. Continuation lines are indented to align with the text after "note: ". */
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

static void line_say(const char *given)
{
    char line[LINE], folded[2 * LINE] = "\n";
    int columns = atomic_load(&out.columns);
    if (log_level_text(given) > log_level()) return;
    text_printable(given, line, sizeof line);             /* names in it may contain any bytes */
    if (out.journal) snprintf(folded, sizeof folded, "%s%s\n", priority(log_level_text(given)), line);
    else fold(line, columns ? columns : SCREEN_COLUMNS, folded, sizeof folded);
    put_line(folded, line, false);
}

void log_line(const char *fmt, ...)
{
    char given[LINE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(given, sizeof given, fmt, ap);
    va_end(ap);
    line_say(given);
}

void log_at(enum log_level level, const char *fmt, ...)
{
    char given[LINE];
    int n = level == LEVEL_INFO ? 0 : snprintf(given, sizeof given, "%s: ", level_names[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(given + n, sizeof given - (size_t)n, fmt, ap);
    va_end(ap);
    line_say(given);
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
    if (!same) screen_put(full, (size_t)snprintf(full, sizeof full, "\r\033[K%s", out.progress));
    pthread_mutex_unlock(&out.lock);
}

int log_error(int code, const char *text)
{
    if (atomic_exchange(&out.said, true)) return code;
    log_progress("");
    char given[1100], line[1100], screen[1110];
    snprintf(given, sizeof given, "mpstaged: %s", text);
    text_printable(given, line, sizeof line);
    snprintf(screen, sizeof screen, "%s%s\n", priority(LEVEL_ERROR), line);
    put_line(screen, line, true);
    log_listener *hear = atomic_load(&out.failed);
    if (hear) hear(code, text);
    return code;
}
