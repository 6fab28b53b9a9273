/* A place without what most have, for LD_PRELOAD. MPSTAGED_WITHOUT has the letters of what is missing: s for unix
 * sockets with a name, f for flock, o for locks of open files, x for statx, as rules of seccomp refuse it; r for
 * renames of checkpoints, as overlayfs refuses them where a layer below has the folder; and h for connections of
 * heartbeats, as a firewall between hosts refuses them. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static bool misses(char what)
{
    const char *s = getenv("MPSTAGED_WITHOUT");
    return s && strchr(s, what);
}

int bind(int fd, const struct sockaddr *a, socklen_t n)
{
    bool named = a->sa_family == AF_UNIX && ((const struct sockaddr_un *)a)->sun_path[0];
    if (!named || !misses('s')) return (int)syscall(SYS_bind, fd, a, n);
    errno = EPERM;
    return -1;
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
    const char *name = a->sa_family == AF_UNIX ? ((const struct sockaddr_un *)a)->sun_path + 1 : "";
    if (strncmp(name, "mpstaged-", 9) != 0 || !misses('h')) return (int)syscall(SYS_connect, fd, a, n);
    errno = ECONNREFUSED;
    return -1;
}

int flock(int fd, int how)
{
    if (!misses('f')) return (int)syscall(SYS_flock, fd, how);
    errno = ENOLCK;
    return -1;
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
    if (!misses('x')) return (int)syscall(SYS_statx, dir, path, flags, mask, st);
    errno = EPERM;
    return -1;
}

int renameat(int from, const char *old, int dir, const char *name)
{
    if (!misses('r') || strncmp(old, "step-", 5) || strchr(old, '.'))
        return (int)syscall(SYS_renameat2, from, old, dir, name, 0);
    errno = EXDEV;
    return -1;
}

static int control(int fd, int what, void *arg)
{
    if ((what != F_OFD_SETLK && what != F_OFD_GETLK) || !misses('o')) return (int)syscall(SYS_fcntl, fd, what, arg);
    errno = ENOLCK;
    return -1;
}

int fcntl(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return control(fd, what, arg);
}
int fcntl64(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return control(fd, what, arg);
}
