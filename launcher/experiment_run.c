/* Starts other programs, one at a time, and ends them when a signal stops this program. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "base/clock.h"
#include "experiment.h"

static sigset_t mine;
static bool stopped;

void words_add(struct argument_words *w, const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) abort();
    va_end(ap);
    *vec_push(w) = s;
}

void words_split(struct argument_words *w, const char *fmt, ...)
{
    va_list ap;
    char *all = NULL;
    va_start(ap, fmt);
    if (vasprintf(&all, fmt, ap) < 0) abort();
    va_end(ap);
    for (char *save = NULL, *s = strtok_r(all, " \t", &save); s; s = strtok_r(NULL, " \t", &save))
        words_add(w, "%s", s);
    free(all);
}

void words_free(struct argument_words *w)
{
    for (int i = 0; i < w->n; i++) free(w->v[i]);
    vec_free(w);
}

void child_signals(void)
{
    static const int which[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigemptyset(&mine);
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        sigaddset(&mine, which[i]);
        signal(which[i], SIG_DFL);                         /* a shell may ignore it, and then none would arrive */
    }
    sigprocmask(SIG_BLOCK, &mine, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Waits for a signal until that time (clock_ns). False: none came. */
static bool signal_take(uint64_t until)
{
    uint64_t now = clock_ns(), ns = until > now ? until - now : 0;
    const struct timespec most = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    int number = sigtimedwait(&mine, NULL, &most);
    if (number > 0 && number != SIGCHLD) stopped = true;
    return number > 0;
}

bool child_stopped(void)
{
    while (signal_take(0)) continue;
    return stopped;
}

void child_forgive(void)
{
    child_stopped();
    stopped = false;
}

int child_run(struct argument_words *argv, const struct job_files *files, struct err *e)
{
    struct supervised_job j = {0};
    *vec_push(argv) = NULL;
    argv->n--;
    int bad = child_stopped() ? -1 : job_start(&j, argv->v, files, e);
    while (!bad && !job_reap(&j)) {
        signal_take(j.stage_ends ? j.stage_ends : UINT64_MAX);
        bool first = stopped && j.stage == JOB_RUNS;
        if (first) j.stage = JOB_ASKED;                    /* a point has nothing to save */
        if (first || (j.stage_ends && clock_ns() >= j.stage_ends)) job_end_further(&j, 0);
    }
    bad = bad || job_finish(&j, e) ? -1 : 0;
    if (!stopped) return bad ? -1 : j.code;
    *e = (struct err){0};
    return err_set(e, E_STOPPED, "stopped");
}

/* Takes mpstaged's line if there is one, because mpirun adds its own lines, maybe with a NUL at the end; otherwise the
 * first line with a message. */
int child_error(int output, int code, struct err *e)
{
    struct text t = {0};
    const char *best = NULL;
    static const char ours[] = "mpstaged: ";
    if (text_read_fd(&t, output, "its output", 1 << 20, NULL) == 0 && t.n) {
        for (size_t i = 0; i < t.n; i++) if (!t.s[i]) t.s[i] = '\n';
        for (char *save = NULL, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            bool is_ours = strncmp(line, ours, sizeof ours - 1) == 0;
            if (is_ours && strncmp(line + sizeof ours - 1, "note: ", 6) == 0) continue;
            if (!best && line[strspn(line, "- \t")]) best = line;
            if (is_ours) {
                best = line + sizeof ours - 1;
                break;
            }
        }
    }
    err_set(e, code, "%s", best ? best : "exited without a message");
    text_free(&t);
    return -1;
}
