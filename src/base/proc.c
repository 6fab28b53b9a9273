#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "base/deadline.h"
#include "base/proc.h"
#include "base/text.h"

/* The name, in parentheses, may contain anything, even ")". The terminal's number is packed like in the kernel's
 * new_encode_dev(). Fields that the system does not provide stay zero. */
bool proc_parse(const char *stat, struct proc *p)
{
    const char *open = strchr(stat, '('), *close = strrchr(stat, ')');
    unsigned long long user = 0, system = 0, start = 0, bytes = 0, pages = 0;
    int terminal;
    *p = (struct proc){.pid = (pid_t)strtol(stat, NULL, 10)};
    if (p->pid <= 0 || !open || !close || close < open) return false;
    int n = sscanf(close + 1, " %c %d %d %*d %d %d %*s %*s %*s %*s %*s %llu %llu"
                   " %*s %*s %*s %*s %*s %*s %llu %llu %llu",
                   &p->state, &p->parent, &p->group, &terminal, &p->foreground, &user, &system, &start, &bytes, &pages);
    if (n < 5) return false;
    unsigned packed = (unsigned)terminal;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(close - open - 1), open + 1);
    p->terminal = makedev(packed >> 8 & 0xfff, (packed & 0xff) | (packed >> 12 & 0xfff00));
    p->cpu = user + system;
    p->start = start;
    p->virtual_bytes = bytes;
    p->resident_pages = pages;
    return true;
}

bool proc_read(pid_t pid, struct proc *p)
{
    char path[40], stat[2048];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0) close(fd);
    stat[n > 0 ? n : 0] = '\0';
    return proc_parse(stat, p);
}

bool proc_lives(pid_t pid)
{
    struct proc p;
    return proc_read(pid, &p) && p.state != 'Z' && p.state != 'X';
}

double proc_boot_parse(const char *text)
{
    static const char key[] = "btime ";
    const char *s = text;
    while (s && strncmp(s, key, sizeof key - 1)) s = (s = strchr(s, '\n')) ? s + 1 : NULL;
    return s ? strtod(s + sizeof key - 1, NULL) : -1;
}

/* MOST: the line of interrupts precedes the boot time, and is long on a system with many interrupts. */
double proc_own_start(void)
{
    enum { MOST = 16 << 20 };
    struct text all = {0};
    struct proc p;
    double boot = text_read_file(&all, "/proc/stat", MOST, NULL) || !all.n ? -1 : proc_boot_parse(all.s);
    text_free(&all);
    return boot < 0 || !proc_read(getpid(), &p) ? -1 : boot + (double)p.start / (double)sysconf(_SC_CLK_TCK);
}

void proc_stderr_wait(void)
{
    struct stat is;
    int unread;
    if (fstat(STDERR_FILENO, &is) || !S_ISFIFO(is.st_mode)) return;
    for (int ms = 0; ms < DEADLINE_READ && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = DEADLINE_PASSED * 1000000L}, NULL);
}
