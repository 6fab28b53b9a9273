/* One start of the command, in a process group of its own: what a terminal's Ctrl-C sends reaches mpstage-run alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "run.h"

/* The command line of a restart goes on where the last one ended. */
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

/* Runs in the child. Its standard input is empty: what one start has read, the next one could not read again. Open MPI
 * 4.1 waits two seconds after the death of a rank unless told otherwise. told: where the error of a failure goes. */
static void become(char **argv, const struct words *w, pid_t parent, int told)
{
    static const int usual[] = {SIGPIPE, SIGTTOU, SIGCHLD};
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || in < 0) _exit(RUN_NOT_STARTED);
    dup2(in, 0);
    close(in);
    setenv("NOTIFY_SOCKET", w->name, 1);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) signal(usual[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    int why = errno;
    if (write(told, &why, sizeof why) < 0) _exit(RUN_NOT_STARTED);
    _exit(RUN_NOT_FOUND);
}

int job_start(struct supervised_job *j, const struct run_options *o, const struct words *w, bool resume, struct err *e)
{
    pid_t parent = getpid();
    int pipes[2], why = 0;
    if (pipe2(pipes, O_CLOEXEC)) return err_set(e, E_OS, "cannot make a pipe: %s", strerror(errno));
    char **argv = command_make(o, resume);
    *j = (struct supervised_job){.pid = fork(), .began = clock_ns()};
    j->look = j->began + RUN_LOOK_S * 1000000000ull;
    if (j->pid == 0) become(argv, w, parent, pipes[1]);
    int failed = errno;
    free(argv);
    close(pipes[1]);
    ssize_t n = j->pid < 0 ? 0 : read(pipes[0], &why, sizeof why);
    close(pipes[0]);
    if (j->pid < 0) return err_set(e, E_OS, "cannot start a process: %s", strerror(failed));
    if (n <= 0) return 0;
    waitpid(j->pid, NULL, 0);
    j->pid = 0;
    return err_set(e, why == ENOENT ? RUN_NOT_FOUND : RUN_NOT_STARTED, "%s: %s", o->command[0], strerror(why));
}

static uint64_t later(double seconds) { return clock_ns() + (uint64_t)(seconds * 1e9); }

void job_end_further(struct supervised_job *j, const struct run_options *o)
{
    if (!j->pid || j->stage == JOB_KILL) return;
    switch (++j->stage) {
    case JOB_ASKED:
        kill(j->pid, SIGUSR1);
        j->stage_ends = later(o->stop_timeout);
        break;
    case JOB_TERM:
        kill(j->pid, SIGTERM);
        kill(j->pid, SIGCONT);
        j->stage_ends = later(RUN_TERM_S);
        break;
    default:
        kill(j->pid, SIGKILL);
        j->stage_ends = 0;
    }
}

int job_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

bool job_reap(struct supervised_job *j)
{
    int status;
    for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
        if (p == j->pid) {
            j->code = job_code(status);
            j->pid = 0;
        }
    return !j->pid;
}
