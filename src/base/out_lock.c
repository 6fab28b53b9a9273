/* Lock files, and what killed processes left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "base/out.h"

/* A lock file of ours is a regular file with one name. */
static int lock_check(const struct stat *st, const char *shown, const char *name, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, E_CANTCREAT, "%s/%s: is %s, not a regular file", shown, name, out_kind(st->st_mode));
    if (st->st_nlink <= 1) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: has another name, too (a hard link)", shown, name);
}

static int lock_failed(const char *shown, const char *name, struct err *e)
{
    return err_set(e, E_CANTCREAT, "%s/%s: %s", shown, name, strerror(errno));
}

static int lock_busy(int fd, const char *shown, const char *name, long *owner, struct err *e)
{
    char text[32] = "";
    if (errno != EWOULDBLOCK) return lock_failed(shown, name, e);
    *owner = pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
    return OUT_LOCK_BUSY;
}

/* 0: locked; 1: the file was removed meanwhile, so another one may exist. */
static int lock_try(int fd, int dir, const char *shown, const char *name, long *owner, struct err *e)
{
    struct stat st, named;
    if (fstat(fd, &st)) return lock_failed(shown, name, e);
    if (st.st_nlink == 0) return 1;
    if (lock_check(&st, shown, name, e)) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB)) return lock_busy(fd, shown, name, owner, e);
    return fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) || named.st_ino != st.st_ino || named.st_dev != st.st_dev;
}

int out_lock(int dir, const char *shown, const char *name, bool make, long *owner, struct err *e)
{
    struct stat st;
    for (;;) {
        /* checked before opening, because opening a device or FIFO may do something */
        bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (!there && errno != ENOENT) return lock_failed(shown, name, e);
        if (!there && !make) return OUT_LOCK_NONE;
        if (there && lock_check(&st, shown, name, e)) return -1;
        int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (there ? 0 : O_CREAT | O_EXCL), 0666);
        if (fd < 0 && (errno == EEXIST || errno == ENOENT)) continue;   /* another process was faster */
        if (fd < 0) return lock_failed(shown, name, e);
        int bad = lock_try(fd, dir, shown, name, owner, e);
        if (!bad) return fd;
        close(fd);
        if (bad < 0) return bad;
    }
}

int out_lock_sign(int fd, const char *shown, const char *name, struct err *e)
{
    char owner[32];
    int n = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) || pwrite(fd, owner, (size_t)n, 0) != n)
        return err_set(e, E_IO, "%s/%s: %s", shown, name, strerror(errno));
    return 0;
}
