/* The supervisor: starts the command, waits for its end, decides whether to restart it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include "base/clock.h"
#include "cluster/failure.h"
#include "run.h"

struct run {
    const struct run_options *o;
    pid_t guard;
    int signals;
    struct words words;
    struct supervised_job job;
    struct failure why;                                   /* of the last start, from its why.json; code 0: unknown */
    long restarts, vain;                                  /* restarts: in all; vain: since the newest checkpoint */
    bool resume, stop, guard_gone, noted;                 /* stop: no further restart */
    bool wants;                                           /* a checkpoint was requested: SIGUSR2 must be forwarded */
    uint64_t busy_since;                                  /* when the run directory was first in use; 0: it was not */
    uint64_t asked;                                       /* when the last request to stop came */
};

/* ---- signals --------------------------------------------------------------------------------- */

/* A program that signals a whole process group often signals its leader, too. Both count as one request. */
static void stop_take(struct run *r, int number)
{
    const uint64_t AT_ONCE = 500000000, now = clock_ns();
    bool again = r->asked && now - r->asked < AT_ONCE;
    r->asked = now;
    r->stop = true;
    if (again) return;
    if (!r->job.pid) return;
    job_end_further(&r->job, r->o->stop_timeout);
    if (r->job.stage == JOB_ASKED)
        run_say("SIG%s: asking the command to save its work and exit within %g s", sigabbrev_np(number),
                r->o->stop_timeout);
    else
        run_say("SIG%s again: sending SIG%s to the command", sigabbrev_np(number),
                r->job.stage == JOB_TERM ? "TERM" : "KILL");
}

static void signal_take(struct run *r, int number)
{
    if (number != SIGUSR1 && number != SIGUSR2) {
        stop_take(r, number);
        return;
    }
    if (number == SIGUSR2) {
        r->wants = true;
        return;
    }
    r->stop = true;
    if (r->job.pid) kill(r->job.pid, number);
}

/* When to forward SIGUSR2 to a command that starts; earlier the signal would kill it. At its first message or, if it
 * sends none, after some time. 0: nothing to forward. */
static uint64_t wish_at(const struct run *r)
{
    if (!r->wants || !r->job.pid) return 0;
    return r->words.spoke ? 1 : r->job.began + RUN_HEARS_S * 1000000000ull;
}

static void wish_pass(struct run *r, uint64_t now)
{
    if (!wish_at(r) || now < wish_at(r)) return;
    r->wants = false;
    tree_signal(r->job.pid, SIGUSR2);
}

/* Only the guard's signals count: a signal to all processes of a service reaches the guard, too. The guard's death also
 * arrives as a signal, SIGTERM. */
static void signals_take(struct run *r)
{
    struct signalfd_siginfo s;
    while (read(r->signals, &s, sizeof s) == sizeof s) {
        r->guard_gone = getppid() != r->guard;
        if (!r->guard_gone && s.ssi_signo != SIGCHLD && (pid_t)s.ssi_pid == r->guard) signal_take(r, (int)s.ssi_signo);
    }
}

/* ---- while the command runs ------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b) { return !a || (b && b < a) ? b : a; }

/* When silence counts as a hang; 0: never. */
static uint64_t hang_at(const struct run *r)
{
    if (!(r->o->hang_timeout > 0) || !r->words.ready || r->job.stage != JOB_RUNS) return 0;
    return r->words.last + (uint64_t)(r->o->hang_timeout * 1e9);
}

static void wait_until(struct run *r, uint64_t when)
{
    struct pollfd fds[] = {{.fd = r->signals, .events = POLLIN}, {.fd = r->words.fd, .events = POLLIN}};
    uint64_t now = clock_ns(), ms = when > now ? (when - now + 999999) / 1000000 : 0;
    poll(fds, 2, !when ? -1 : ms < 3600000 ? (int)ms : 3600000);
    words_take(&r->words);
    signals_take(r);
}

static void hang_end(struct run *r)
{
    struct tree t = {0};
    char who[80] = "";
    tree_scan(&t);
    for (int i = 0; i < t.all.n && !*who; i++)
        if (t.all.v[i].state == 'T') snprintf(who, sizeof who, ", and process %d is stopped", (int)t.all.v[i].pid);
    tree_free(&t);
    run_say("no message from the command for %.1f s%s: killing it", (double)(clock_ns() - r->words.last) * 1e-9, who);
    r->job.hung = true;
    r->job.stage = JOB_ASKED;                             /* a command that hangs cannot save anything */
    job_end_further(&r->job, r->o->stop_timeout);
}

/* When the time to exit is over for a command that has reported its failure; 0: it has not. mpirun may fail to exit if
 * it cannot reach another host, or if no program reads its output. */
static uint64_t failed_at(const struct run *r)
{
    if (r->words.failed < 0 || r->job.stage != JOB_RUNS) return 0;
    return r->words.failed_at + RUN_FAILED_S * 1000000000ull;
}

static void failed_end(struct run *r)
{
    run_say("%d s after the command failed with %lld it has not exited: killing it", RUN_FAILED_S, r->words.failed);
    r->job.said = (int)r->words.failed;
    r->job.stage = JOB_ASKED;
    job_end_further(&r->job, r->o->stop_timeout);
}

/* Kills a launcher that stays after its last process. Open MPI 4.1's mpirun may deadlock when a rank dies while it
 * joins; so until a process was seen, this looks more often, and one that died and stays a zombie counts. MPICH's
 * mpirun waits for ever for a host that ssh did not reach: ssh is a zombie, and no rank has spoken. */
static void launcher_poll(struct run *r, uint64_t now)
{
    struct supervised_job *j = &r->job;
    int alive, all, ended;
    if (!j->pid || now < j->look) return;
    j->look = now + RUN_LOOK_S * 1000000000ull;
    if (!tree_launcher(j->pid, &alive, &all, &ended)) return;
    j->had |= all > 0;
    if (!j->had) j->look = now + RUN_FIRST_LOOK_MS * 1000000ull;
    if (!j->had || (alive && (r->words.spoke || !ended))) {
        j->empty = 0;
        return;
    }
    if (!j->empty) j->empty = now;
    if (now - j->empty < RUN_EMPTY_S * 1000000000ull || j->stage >= JOB_TERM) return;
    run_say("the launcher has not exited %d s after its %s process%s: killing it", RUN_EMPTY_S,
            alive ? "first" : "last", alive ? ", before the ranks met" : "");
    j->stage = JOB_TERM;                                  /* it handles no other signal */
    job_end_further(j, r->o->stop_timeout);
}

/* Waits until the command or the guard has ended. */
static void job_watch(struct run *r)
{
    while (!job_reap(&r->job) && !r->guard_gone) {
        uint64_t ends = earlier(r->job.stage_ends, failed_at(r));
        wait_until(r, earlier(earlier(ends, r->job.look), earlier(hang_at(r), wish_at(r))));
        if (r->words.ready && !r->noted) {
            left_note_all(&r->job.left);
            r->noted = true;
        }
        uint64_t now = clock_ns(), hang = hang_at(r);
        if (!job_reap(&r->job) && r->job.stage_ends && now >= r->job.stage_ends) {
            job_end_further(&r->job, r->o->stop_timeout);
            run_say("the command has not exited: sending SIG%s", r->job.stage == JOB_TERM ? "TERM" : "KILL");
        }
        wish_pass(r, now);
        if (r->job.pid && hang && now >= hang) hang_end(r);
        uint64_t failed = failed_at(r);
        if (r->job.pid && failed && now >= failed) failed_end(r);
        launcher_poll(r, now);
    }
}

/* ---- after the command has ended -------------------------------------------------------------- */

/* Whether a restart would end in the same way, or nothing is left to do. */
static bool is_final(int code)
{
    return !failure_may_pass(code) || code == JOB_NOT_STARTED || code == JOB_NOT_FOUND;
}

enum { END_NAME = 1100 };
static const char *end_name(const struct run *r, int code, char name[END_NAME])
{
    const char *signal = code > 128 ? sigabbrev_np(code - 128) : NULL, *why = r->why.e.text;
    size_t n = (size_t)snprintf(name, 48, signal ? "%d (SIG%s)" : "%d", code, signal);
    if (r->why.e.code && *why) snprintf(name + n, END_NAME - n, ": %s", why);
    return name;
}

/* The point from which it continues, for people. */
static const char *place_name(const struct run *r, char name[48])
{
    if (r->words.committed < 0) return "no checkpoint is known";
    snprintf(name, 48, "step %lld is saved", r->words.committed);
    return name;
}

/* Whether a command with --overwrite failed before its first step. The restart then uses --overwrite again: with
 * --resume it would continue the run that it was to replace. */
static bool begins_anew(const struct run *r)
{
    bool anew = false;
    for (char **s = r->o->command; *s; s++) anew |= !strcmp(*s, "--overwrite");
    return anew && r->words.spoke && !r->words.was_ready && r->words.committed < 0;
}

enum { AGAIN = -1 };

/* Status 75: another user stopped it. Or, if it comes at once, another process uses the run directory, maybe one that
 * is about to exit; then the command is retried unchanged for some time. */
static int after_75(struct run *r, uint64_t *pause)
{
    uint64_t now = clock_ns(), patience = RUN_BUSY_S * 1000000000ull;
    if (r->words.ready || now - r->job.began > patience) return E_STOPPED;
    if (!r->busy_since) {
        r->busy_since = now;
        run_say("the run may be in use by another process (75): trying again for %d s", RUN_BUSY_S);
    }
    if (now - r->busy_since > patience) return E_STOPPED;
    *pause = 300000000;
    return AGAIN;
}

/* The wait before restart number `vain` without a checkpoint: none before the first, then twice as long each time. */
static uint64_t backoff(const struct run *r)
{
    double s = r->vain > 1 ? r->o->backoff : 0, most = s > RUN_PAUSE_S ? s : RUN_PAUSE_S;
    for (long i = 2; i < r->vain && s > 0 && s < most; i++) s *= 2;
    return (uint64_t)((s < most ? s : most) * 1e9);
}

/* How the command ended. When one task ends a job, Slurm's srun kills all its tasks, even that one if it has not exited
 * yet. It then reports their deaths instead of the status. So the status in why.json counts, or else the one that the
 * command announced, unless it only says that a process was lost: the signal explains that. */
static int code_of(const struct run *r)
{
    if (r->job.hung) return E_HANG;
    if (r->job.said) return r->job.said;
    if (r->job.code && r->why.e.code && r->why.e.code != E_DEVICE) return r->why.e.code;
    bool reported = r->words.failed > 0 && r->words.failed != E_DEVICE;
    return r->job.code > 128 && reported ? (int)r->words.failed : r->job.code;
}

/* Returns the program's exit status, or AGAIN with the time to wait before a restart. */
static int after(struct run *r, uint64_t *pause)
{
    char name[END_NAME], place[48];
    int code = code_of(r);
    *pause = 0;
    if (is_final(code)) return code;
    if (r->stop && code != E_STOPPED)
        run_say("the command ended with %s; %s", end_name(r, code, name), place_name(r, place));
    if (r->stop) return E_STOPPED;
    if (code == E_STOPPED) return after_75(r, pause);
    r->busy_since = 0;
    if (r->words.advanced) r->vain = 0;
    if (r->vain >= r->o->max_fruitless) {
        run_say("giving up: %ld restart%s without a new checkpoint, the last one ended with %s; %s", r->vain,
                r->vain == 1 ? "" : "s", end_name(r, code, name), place_name(r, place));
        return E_INTERNAL;
    }
    if (r->restarts == r->o->max_restarts) {
        run_say("giving up after %ld restart%s: the command ended with %s; %s", r->restarts,
                r->restarts == 1 ? "" : "s", end_name(r, code, name), place_name(r, place));
        return code;
    }
    r->restarts++;
    r->vain++;
    r->resume = !begins_anew(r);
    *pause = backoff(r);
    run_say("the command ended with %s; %s; restart %ld", end_name(r, code, name), place_name(r, place), r->restarts);
    return AGAIN;
}

/* Waits, and handles signals that come. False: do not restart. */
static bool pause_wait(struct run *r, uint64_t pause)
{
    char status[80];
    uint64_t until = clock_ns() + pause;
    snprintf(status, sizeof status, "STATUS=restart %ld", r->restarts);
    words_report(&r->words, status);
    words_patience(&r->words, (double)pause * 1e-9 + RUN_START_S);
    do wait_until(r, until);
    while (!r->stop && !r->guard_gone && clock_ns() < until);
    job_reap(&r->job);
    return !r->stop && !r->guard_gone;
}

/* The command line of a restart continues the last run: --resume is added and --overwrite left out. */
static char **command_make(const struct run_options *o, bool resume)
{
    VEC(char *) v = {0};
    bool has = false;
    for (char **s = o->command; *s; s++) {
        has |= !strcmp(*s, "--resume") || !strncmp(*s, "--resume=", 9);
        if (!resume || strcmp(*s, "--overwrite")) *vec_push(&v) = *s;
    }
    static char option[] = "--resume";
    if (resume && !has) *vec_push(&v) = option;
    *vec_push(&v) = NULL;
    return v.v;
}

/* Starts the command once and waits until all its processes are gone. -1: *e. */
static int job_once(struct run *r, struct err *e)
{
    char **argv = command_make(r->o, r->resume);
    words_begin(&r->words);
    r->noted = false;
    int bad = job_start(&r->job, argv, NULL, e);
    free(argv);
    if (bad) return -1;
    r->job.look = r->job.began + RUN_FIRST_LOOK_MS * 1000000ull;
    job_watch(r);
    bad = job_finish(&r->job, e);
    words_take(&r->words);
    struct err none = {0};
    if (!r->words.run || failure_read(r->words.run, &r->why, &none)) r->why.e.code = 0;
    return bad;
}

static int signals_open(struct run *r, struct err *e)
{
    sigset_t mine;
    sigprocmask(SIG_SETMASK, NULL, &mine);                /* the guard has blocked the signals that are read here */
    r->signals = signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals < 0 ? err_set(e, E_OS, "cannot read signals: %s", strerror(errno)) : 0;
}

/* Open MPI 4.1 by default waits two seconds after the death of a rank. */
static void command_environment(const struct words *w)
{
    setenv("NOTIFY_SOCKET", w->name, 1);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
}

int run_supervise(const struct run_options *o, pid_t guard)
{
    struct run r = {.o = o, .guard = guard};
    struct err e = {0};
    uint64_t pause;
    int code = AGAIN;
    bool bad = signals_open(&r, &e) || words_open(&r.words, &e);
    if (!bad) command_environment(&r.words);
    while (!bad && code == AGAIN && !job_once(&r, &e)) {
        code = r.guard_gone ? E_INTERNAL : after(&r, &pause);
        if (code == AGAIN && !pause_wait(&r, pause)) code = E_STOPPED;
    }
    if (e.code) run_say("%s", e.text);
    words_report(&r.words, "STOPPING=1");
    return e.code ? e.code : code;
}
