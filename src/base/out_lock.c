#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "base/out.h"
#include "base/proc.h"

/* Our lock files are regular files with one name. */
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

/* ---- the owner named in the file -------------------------------------------------------------------------------- */

/* Identifies a process: its number, start time, boot and host, because numbers are used again. */
struct owner { long pid; unsigned long long start; char boot[40], host[65]; };

static struct owner owner_self(void)
{
    struct owner o = {.pid = (long)getpid()};
    struct proc p;
    struct text boot = {0};
    if (proc_read(getpid(), &p)) o.start = p.start;
    if (!text_read_file(&boot, "/proc/sys/kernel/random/boot_id", 64, NULL) && boot.n) sscanf(boot.s, "%39s", o.boot);
    if (gethostname(o.host, sizeof o.host - 1) || !*o.host) snprintf(o.host, sizeof o.host, "?");
    if (!*o.boot) snprintf(o.boot, sizeof o.boot, "?");
    text_free(&boot);
    return o;
}

static bool owner_read(int fd, struct owner *o)
{
    char s[160] = "";
    *o = (struct owner){0};
    return pread(fd, s, sizeof s - 1, 0) > 0 &&
           sscanf(s, "%ld %llu %39s %64s", &o->pid, &o->start, o->boot, o->host) > 0;
}

static int owner_write(int fd)
{
    char s[160];
    const struct owner o = owner_self();
    int n = snprintf(s, sizeof s, "%ld %llu %s %s\n", o.pid, o.start, o.boot, o.host);
    return ftruncate(fd, 0) || pwrite(fd, s, (size_t)n, 0) != n ? -1 : 0;
}

static bool is_same(const struct owner *a, const struct owner *b)
{
    return a->pid == b->pid && a->start == b->start && !strcmp(a->boot, b->boot);
}

/* Without locks in the file system, the last process that wrote its name holds the lock, unless an earlier owner lives.
 * 0: this process. */
static int name_lock(int fd, const char *shown, const char *name, long *owner, struct err *e)
{
    const struct timespec others = {.tv_nsec = 200000000};   /* until simultaneous processes have written */
    struct owner is, me = owner_self();
    struct proc p;
    bool any = owner_read(fd, &is) && *is.boot && !is_same(&is, &me);
    if (any && strcmp(is.boot, me.boot) && strcmp(is.host, me.host))
        return err_set(e, E_CANTCREAT, "%s/%s: this file system has no locks, and process %ld on %s may still run; if "
                       "it does not, remove the file", shown, name, is.pid, is.host);
    *owner = is.pid;
    if (any && !strcmp(is.boot, me.boot) && proc_read((pid_t)is.pid, &p) && p.start == is.start && p.state != 'Z')
        return OUT_LOCK_BUSY;
    if (owner_write(fd)) return lock_failed(shown, name, e);
    nanosleep(&others, NULL);
    *owner = owner_read(fd, &is) ? is.pid : 0;
    return is_same(&is, &me) ? 0 : OUT_LOCK_BUSY;
}

static int lock_busy(int fd, long *owner)
{
    struct owner is;
    *owner = owner_read(fd, &is) ? is.pid : 0;
    return OUT_LOCK_BUSY;
}

/* out_lock_is_held takes the lock for a moment: wait for that. */
static int flock_try(int fd)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int turn = 0; flock(fd, LOCK_EX | LOCK_NB); turn++) {
        if (errno != EWOULDBLOCK || turn == 10) return -1;
        nanosleep(&moment, NULL);
    }
    return 0;
}

/* Uses flock, or open file description locks where the file system has no flock. 0: locked. */
static int any_lock(int fd, const char *shown, const char *name, long *owner, struct err *e)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!flock_try(fd)) return 0;
    if (errno == EWOULDBLOCK) return lock_busy(fd, owner);
    if (!fcntl(fd, F_OFD_SETLK, &whole)) return 0;
    if (errno == EAGAIN || errno == EACCES) return lock_busy(fd, owner);
    return name_lock(fd, shown, name, owner, e);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* 0: locked; 1: the file was removed meanwhile, so a new one may exist. */
static int lock_try(int fd, int dir, const char *shown, const char *name, long *owner, struct err *e)
{
    struct stat st, named;
    if (fstat(fd, &st)) return lock_failed(shown, name, e);
    if (st.st_nlink == 0) return 1;
    if (lock_check(&st, shown, name, e)) return -1;
    int bad = any_lock(fd, shown, name, owner, e);
    if (bad) return bad;
    return fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) || named.st_ino != st.st_ino || named.st_dev != st.st_dev;
}

int out_lock(int dir, const char *shown, const char *name, bool make, long *owner, struct err *e)
{
    struct stat st;
    for (;;) {
        /* check before open, because opening a device or FIFO may have effects */
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
    char s[32];
    struct owner is, me = owner_self();
    if (owner_read(fd, &is) && is_same(&is, &me)) return 0;   /* no locks in the file system: keep the other fields */
    int n = snprintf(s, sizeof s, "%ld\n", me.pid);
    if (ftruncate(fd, 0) || pwrite(fd, s, (size_t)n, 0) != n)
        return err_set(e, E_IO, "%s/%s: %s", shown, name, strerror(errno));
    return 0;
}

bool out_lock_is_held(int fd)
{
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct owner is, me = owner_self();
    struct proc p;
    if (!flock(fd, LOCK_SH | LOCK_NB)) {
        flock(fd, LOCK_UN);
        return false;
    }
    if (errno == EWOULDBLOCK) return true;
    if (!fcntl(fd, F_OFD_GETLK, &whole)) return whole.l_type != F_UNLCK;
    return owner_read(fd, &is) && !strcmp(is.boot, me.boot) && proc_read((pid_t)is.pid, &p) && p.start == is.start;
}
