/* Starts other programs, one at a time, and ends them when this program is told to end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "experiment.h"

enum { PATIENCE_S = 10 }; /* mpirun ends its ranks within some seconds of SIGTERM */
static volatile sig_atomic_t told, child;

void words_add(struct argument_words *w, const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) abort();
    va_end(ap);
    *vec_push(w) = s;
}

void words_add_all(struct argument_words *w, const struct argument_words *more)
{
    for (int i = 0; i < more->n; i++) words_add(w, "%s", more->v[i]);
}

void words_split(struct argument_words *w, const char *text)
{
    for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
        size_t n = strcspn(text, " \t");
        words_add(w, "%.*s", (int)n, text);
        text += n;
    }
}

void words_free(struct argument_words *w)
{
    for (int i = 0; i < w->n; i++) free(w->v[i]);
    vec_free(w);
}

/* ---- signals --------------------------------------------------------------------------------- */

/* The second signal is from the timer: a program that did not end on SIGTERM is killed. */
static void on_signal(int sig)
{
    if (sig != SIGALRM) {
        told = 1;
        alarm(PATIENCE_S);
    }
    if (child > 0) kill(sig == SIGALRM ? -(pid_t)child : (pid_t)child, sig == SIGALRM ? SIGKILL : SIGTERM);
}

void child_signals(void)
{
    static const int which[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};
    struct sigaction a = {.sa_handler = on_signal};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) sigaction(which[i], &a, NULL);
}

bool child_stopped(void) { return told; }

void child_forgive(void)
{
    alarm(0);
    told = 0;
}

/* ---- one program ----------------------------------------------------------------------------- */

/* Runs in the child. It has a process group of its own, so that Ctrl-C reaches only this program, which ends mpirun in
 * its own way. If this program is killed, the child ends, too. */
static void become(char **argv, int out, int error, pid_t parent)
{
    int in = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || in < 0) _exit(127);
    dup2(in, 0);
    dup2(out, 1);
    dup2(error, 2);
    execvp(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int child_run(const struct argument_words *command, int out, int error, struct err *e)
{
    struct argument_words argv = {0};
    pid_t parent = getpid(), pid;
    int status = 0;
    words_add_all(&argv, command);
    *vec_push(&argv) = NULL;
    fflush(NULL);
    sigset_t all, before; /* blocks signals until the child is known */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid = told ? -1 : fork();
    if (pid == 0) {
        for (int s = 1; s < 32; s++) signal(s, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        become(argv.v, out, error, parent);
    }
    child = pid > 0 ? pid : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    child = 0;
    words_free(&argv);
    if (told) return err_set(e, E_STOPPED, "stopped");
    if (pid < 0) return err_set(e, E_INTERNAL, "fork: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Takes the line of mpstaged if there is one, because mpirun adds its own, possibly with a NUL at the end; otherwise
 * the first line that says anything. */
int child_error(int output, int code, struct err *e)
{
    struct text t = {0};
    const char *best = NULL;
    static const char ours[] = "mpstaged: ";
    if (text_read_fd(&t, output, "its output", 1 << 20, NULL) == 0 && t.n) {
        for (size_t i = 0; i < t.n; i++) if (!t.s[i]) t.s[i] = '\n';
        for (char *save = NULL, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            bool mine = strncmp(line, ours, sizeof ours - 1) == 0;
            if (mine && strncmp(line + sizeof ours - 1, "note: ", 6) == 0) continue;
            if (!best && line[strspn(line, "- \t")]) best = line;
            if (mine) {
                best = line + sizeof ours - 1;
                break;
            }
        }
    }
    err_set(e, code, "%s", best ? best : "exited without a message");
    text_free(&t);
    return -1;
}
