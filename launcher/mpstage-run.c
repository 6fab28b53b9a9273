/* mpstage-run: the command line, and the guard, the supervisor's parent. See mpstage-run(1). */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/launched.h"
#include "base/out.h"
#include "base/text.h"
#include "cli.h"
#include "run.h"

void run_say(const char *fmt, ...)
{
    static struct out_stream screen = {.fd = STDERR_FILENO};
    char line[1200], clean[2400], all[2500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    int n = snprintf(all, sizeof all, "mpstage-run: %s\n", text_printable(line, clean, sizeof clean));
    out_stream_write(&screen, all, (size_t)n);      /* never waits: a reader that is stopped must not delay a restart */
}

/* ---- the command line ------------------------------------------------------------------------ */

static int take_seconds(const char *option, const char *text, double *out, struct err *e)
{
    const double MOST = 1e6;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || v < 0 || v > MOST)
        return err_set(e, E_USAGE, "%s: \"%s\" is not a number of seconds from 0 to %.0f", option, text, MOST);
    *out = v;
    return 0;
}

static int option_take(struct run_options *o, int c, const char *arg, struct err *e)
{
    switch (c) {
    case RUN_MAX_RESTARTS: return cli_count("--max-restarts", arg, 0, &o->max_restarts, e);
    case RUN_MAX_FRUITLESS: return cli_count("--max-fruitless", arg, 1, &o->max_fruitless, e);
    case RUN_BACKOFF: return take_seconds("--backoff", arg, &o->backoff, e);
    case RUN_STOP_TIMEOUT: return take_seconds("--stop-timeout", arg, &o->stop_timeout, e);
    default: return take_seconds("--hang-timeout", arg, &o->hang_timeout, e);
    }
}

/* Options end with the first word that is no option. 0: continue; 1: finished, as after --help; -1: *e. */
static int parse(struct run_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct run_options){.max_restarts = -1, .max_fruitless = 3, .backoff = 1, .stop_timeout = 60};
    int c;
    while ((c = cli_next(&cli_run, argc, argv, e)) >= 0) if (option_take(o, c, optarg, e)) return -1;
    if (c != CLI_END) return c == CLI_FINISHED ? 1 : -1;
    if (optind == argc) return err_set(e, E_USAGE, "no command: mpstage-run -- COMMAND (see mpstage-run --help)");
    o->command = argv + optind;
    return 0;
}

/* ---- the guard ------------------------------------------------------------------------------- */

/* Whether the supervisor is stopped, by SIGSTOP for example, and was at the previous check. */
static bool stands(pid_t supervisor, bool *before)
{
    struct proc p;
    bool is = proc_read(supervisor, &p) && p.state == 'T', again = is && *before;
    *before = is;
    return again;
}

/* Resumes a stopped supervisor: it handles no signal and restarts nothing. */
static void supervisor_wake(pid_t supervisor)
{
    run_say("the supervisor, process %d, was stopped: continuing it", (int)supervisor);
    kill(supervisor, SIGCONT);
}

/* Forwards signals until the supervisor has ended, and returns its status. Resumes a supervisor that was stopped. Kills
 * one that has not ended long after a stop request, and then the command, too. */
static int guard_wait(const struct run_options *o, pid_t supervisor, const sigset_t *mine)
{
    const struct timespec look = {.tv_sec = RUN_LOOK_S};
    bool before = false;
    for (uint64_t ends = 0;;) {
        int status, number = sigtimedwait(mine, NULL, &look);
        if (number > 0 && number != SIGCHLD) {
            bool is = true;
            if (stands(supervisor, &is)) supervisor_wake(supervisor);
            kill(supervisor, number);
            bool stops = number != SIGUSR2 && number != SIGUSR1;
            if (stops && !ends) ends = clock_ns() + (uint64_t)((o->stop_timeout + RUN_DEAF_S) * 1e9);
        }
        for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
            if (p == supervisor) return status;
        if (number < 0 && stands(supervisor, &before)) supervisor_wake(supervisor);
        if (ends && clock_ns() >= ends) {
            run_say("the supervisor, process %d, has not exited %g s after a stop request: killing it", (int)supervisor,
                    o->stop_timeout + RUN_DEAF_S);
            kill(supervisor, SIGKILL);
            ends = UINT64_MAX;
        }
    }
}

/* The supervisor has its own process group, so that Ctrl-C reaches it only once, through the guard. */
static int guard(const struct run_options *o, const sigset_t *mine)
{
    pid_t self = getpid(), pid = fork();
    if (pid < 0) {
        run_say("cannot start a process: %s", strerror(errno));
        return E_OS;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        return getppid() == self ? run_supervise(o, self) : E_INTERNAL;
    }
    int status = guard_wait(o, pid, mine);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    struct supervised_job job = {0};
    struct err e = {0};
    left_note_all(&job.left);
    job_finish(&job, &e);
    run_say("the supervisor was killed by SIG%s; the command was killed, too%s%s", sigabbrev_np(WTERMSIG(status)),
            e.code ? "; " : "", e.text);
    return E_INTERNAL;
}

int main(int argc, char **argv)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    struct run_options o;
    struct err e = {0};
    sigset_t mine;
    int done = parse(&o, argc, argv, &e);
    if (!done && launched_once("mpstage-run", &e)) done = -1;
    if (done < 0) run_say("%s", e.text);
    if (done) return done < 0 ? e.code : 0;
    sigemptyset(&mine);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) sigaddset(&mine, ours[i]);
    sigprocmask(SIG_SETMASK, &mine, NULL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    return guard(&o, &mine);
}
