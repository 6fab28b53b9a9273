/* A pipe with one byte in it. */
#include "config.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cluster/leader.h"

static int from = -1;                                     /* -1: none */
static atomic_bool taken;

static void end_close(int fd) { if (fd >= 0) close(fd); }

void leader_make(struct leader_place *p)
{
    int fd[2];
    struct stat is;
    *p = (struct leader_place){.pid = 0};
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK)) return;
    bool bad = write(fd[1], "", 1) != 1 || fstat(fd[0], &is);
    close(fd[1]);
    if (bad) { close(fd[0]); return; }
    end_close(from);
    from = fd[0];
    *p = (struct leader_place){(int32_t)getpid(), fd[0], is.st_dev, is.st_ino};
}

/* Processes of one host may have different process numbers, as in containers. Then the descriptor is another file. */
void leader_join(const struct leader_place *p)
{
    char path[64];
    struct stat is;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)p->pid, (int)p->fd);
    if (!p->pid || p->pid == getpid()) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool same = fd >= 0 && !fstat(fd, &is) && is.st_dev == p->device && is.st_ino == p->inode;
    end_close(same ? from : fd);
    if (same) from = fd;
}

bool leader_take(void)
{
    char byte;
    return !atomic_exchange(&taken, true) && (from < 0 || read(from, &byte, 1) == 1);
}
