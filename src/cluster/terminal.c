/* Whether a person watches, and how wide the terminal is. */
#include "config.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/proc.h"
#include "cluster/terminal.h"

/* The launcher is the nearest ancestor whose standard error is not ours; shells may be in between, and
 * MPICH's proxy. Returns its number, or 0, and its standard error. */
static pid_t launcher_find(const struct stat *ours, struct stat *theirs, struct proc *process)
{
    enum { MOST_SHELLS = 8 };
    char path[40];
    pid_t pid = getppid();
    for (int i = 0; i < MOST_SHELLS && pid > 0; i++, pid = process->parent) {
        snprintf(path, sizeof path, "/proc/%d/fd/2", (int)pid);
        if (stat(path, theirs) || !proc_read(pid, process)) return 0;
        bool other = theirs->st_dev != ours->st_dev || theirs->st_ino != ours->st_ino;
        if (other && strcmp(process->name, "hydra_pmi_proxy")) return pid;
    }
    return 0;
}

/* The terminal cannot be opened if it belongs to another user, as after su(1); its device is still known. */
static void launcher_screen(struct terminal *s)
{
    struct stat ours, theirs;
    struct proc p;
    char path[40];
    if (fstat(STDERR_FILENO, &ours) || S_ISREG(ours.st_mode) || S_ISCHR(ours.st_mode)) return;
    s->launcher = launcher_find(&ours, &theirs, &p);
    if (!s->launcher || !S_ISCHR(theirs.st_mode)) return;
    snprintf(path, sizeof path, "/proc/%d/fd/2", (int)s->launcher);
    s->fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    s->device = theirs.st_rdev;
    s->terminal = s->fd >= 0 ? isatty(s->fd) : p.terminal == s->device;
}

void terminal_open(struct terminal *s, int wanted, bool launched)
{
    const char *term = getenv("TERM");
    struct stat ours;
    *s = (struct terminal){.always = wanted > 0, .fd = -1};
    if (wanted < 0) return;
    if (isatty(STDERR_FILENO)) {
        s->fd = STDERR_FILENO;
        s->terminal = true;
        /* a rank has its own process group, which is never in the foreground */
        if (!launched && fstat(STDERR_FILENO, &ours) == 0) s->device = ours.st_rdev;
    } else if (launched) launcher_screen(s);
    if (!s->always && (!term || !*term || strcmp(term, "dumb") == 0)) s->terminal = false;
}

/* A process whose terminal is not its controlling one counts as in the foreground. */
static bool background(const struct terminal *s)
{
    struct proc p;
    if (!proc_read(s->launcher ? s->launcher : getpid(), &p)) return s->launcher != 0; /* it exited */
    return p.terminal == s->device && p.foreground != p.group;
}

int terminal_columns(const struct terminal *s)
{
    struct winsize w;
    if (!s->terminal || (!s->always && background(s))) return s->always ? SCREEN_COLUMNS : 0;
    return s->fd >= 0 && ioctl(s->fd, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : SCREEN_COLUMNS;
}

bool terminal_is_journal(bool launched)
{
    const char *name = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat ours, theirs;
    struct proc p;
    if (!name || sscanf(name, "%llu:%llu", &dev, &ino) != 2 || fstat(STDERR_FILENO, &ours)) return false;
    if (ours.st_dev == dev && ours.st_ino == ino) return true;
    if (!launched || !S_ISFIFO(ours.st_mode) || !launcher_find(&ours, &theirs, &p)) return false;
    return theirs.st_dev == dev && theirs.st_ino == ino;
}

void terminal_close(struct terminal *s)
{
    if (s->fd > STDERR_FILENO) close(s->fd);
    s->fd = -1;
}
