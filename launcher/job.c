/* One start of a command. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "job.h"

/* Runs in the child. Its standard input is empty, because a restart could not read it again. told: gets the errno of a
 * failure. */
static void become(char **argv, const struct job_files *files, pid_t parent, int told)
{
    static const int usual[] = {SIGPIPE, SIGTTOU, SIGCHLD, SIGXFSZ};
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || in < 0 || (files && files->folder >= 0 && fchdir(files->folder))) _exit(JOB_NOT_STARTED);
    dup2(in, 0);
    close(in);
    if (files) dup2(files->out, 1), dup2(files->error, 2);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) signal(usual[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    int why = errno;
    if (write(told, &why, sizeof why) < 0) _exit(JOB_NOT_STARTED);
    _exit(JOB_NOT_FOUND);
}

int job_start(struct supervised_job *j, char **argv, const struct job_files *files, struct err *e)
{
    pid_t parent = getpid();
    int pipes[2], why = 0;
    if (pipe2(pipes, O_CLOEXEC)) return err_set(e, E_OS, "cannot make a pipe: %s", strerror(errno));
    *j = (struct supervised_job){.pid = fork(), .began = clock_ns()};
    if (j->pid == 0) become(argv, files, parent, pipes[1]);
    int failed = errno;
    close(pipes[1]);
    ssize_t n = j->pid < 0 ? 0 : read(pipes[0], &why, sizeof why);
    close(pipes[0]);
    if (j->pid < 0) return err_set(e, E_OS, "cannot start a process: %s", strerror(failed));
    if (n <= 0) {
        left_note(&j->left, j->pid);
        return 0;
    }
    waitpid(j->pid, NULL, 0);
    j->pid = 0;
    return err_set(e, why == ENOENT ? JOB_NOT_FOUND : JOB_NOT_STARTED, "%s: %s", argv[0], strerror(why));
}

static uint64_t later(double seconds) { return clock_ns() + (uint64_t)(seconds * 1e9); }

void job_end_further(struct supervised_job *j, double patience)
{
    if (!j->pid || j->stage == JOB_KILL) return;
    switch (++j->stage) {
    case JOB_ASKED:
        kill(j->pid, SIGUSR1);
        j->stage_ends = later(patience);
        break;
    case JOB_TERM:
        kill(j->pid, SIGTERM);
        kill(j->pid, SIGCONT);
        j->stage_ends = later(JOB_TERM_S);
        break;
    default:
        kill(j->pid, SIGKILL);
        j->stage_ends = 0;
    }
}

bool job_reap(struct supervised_job *j)
{
    int status;
    for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
        if (p == j->pid) {
            j->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            j->pid = 0;
        }
    return !j->pid;
}
