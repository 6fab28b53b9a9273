#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/out.h"

static const char aside_prefix[] = ".mpstaged-";

const char *out_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFLNK: return "a symbolic link";
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a FIFO";
    case S_IFSOCK: return "a socket";
    case S_IFREG: return "a regular file";
    default: return "a device";
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int out_stat(const struct out_place *p, struct stat *st, struct err *e)
{
    struct stat own;
    if (!st) st = &own;
    if (fstatat(p->dir, p->name, st, AT_SYMLINK_NOFOLLOW)) {
        *st = (struct stat){0};
        return errno == ENOENT ? 0 : err_set(e, E_CANTCREAT, "%s: %s", p->path, strerror(errno));
    }
    if (S_ISREG(st->st_mode) || (p->over_folder && S_ISDIR(st->st_mode))) return 0;
    return err_set(e, E_CANTCREAT, "%s: is %s, not a regular file", p->path, out_kind(st->st_mode));
}

/* Checks that files can be made in a folder. */
static int folder_check(const struct out_place *p, struct err *e)
{
    if (faccessat(p->dir, ".", W_OK | X_OK, AT_EACCESS) == 0) return 0;
    return err_set(e, E_CANTCREAT, "%s: cannot create: %s", p->path, strerror(errno));
}

static int irreplaceable(const char *path, const char *why, struct err *e)
{
    return err_set(e, E_CANTCREAT, "%s: cannot be replaced: %s", path, why);
}

int out_replaceable(int dir, const char *path, const char *name, struct err *e)
{
    enum { WANT = STATX_MODE | STATX_UID };
    const uint64_t kept = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND;
    struct statx f, folder;
    const int bad = statx(dir, "", AT_EMPTY_PATH, WANT, &folder);
    if (bad && errno == EPERM) return 0;                  /* seccomp rules that do not know the call */
    if (bad) return err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    if (folder.stx_attributes & kept) return irreplaceable(path, "its folder is immutable or append-only", e);
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW, WANT, &f)) return 0;
    if (f.stx_attributes & STATX_ATTR_MOUNT_ROOT) return irreplaceable(path, "it is a mount point", e);
    if (f.stx_attributes & kept) return irreplaceable(path, "it is immutable or append-only", e);
    uid_t me = geteuid();
    if (folder.stx_mode & S_ISVTX && me && me != f.stx_uid && me != folder.stx_uid)
        return irreplaceable(path, "it is another user's, in a folder with the sticky bit", e);
    return 0;
}

static int way_try(struct out_place *p, struct err *e);

static int place_check(struct out_place *p, struct err *e)
{
    if (!*p->path) err_set(e, E_CANTCREAT, "the name of a file is empty");
    else if (!*p->name || strcmp(p->name, ".") == 0 || strcmp(p->name, "..") == 0)
        err_set(e, E_CANTCREAT, "%s: is a directory", p->path);
    else if (p->dir < 0) err_set(e, E_CANTCREAT, "%s: cannot create: %s", p->path, strerror(errno));
    else if (!out_stat(p, NULL, e) && !folder_check(p, e) && !out_replaceable(p->dir, p->path, p->name, e) &&
             !way_try(p, e)) return 0;
    out_place_free(p);
    return -1;
}

static int place_find(const char *path, bool over_folder, struct out_place *p, struct err *e)
{
    char *slash, *dir = mem_strdup(path);
    *p = (struct out_place){.dir = -1, .path = mem_strdup(path), .over_folder = over_folder};
    p->name = strrchr(p->path, '/') ? strrchr(p->path, '/') + 1 : p->path;
    if ((slash = strrchr(dir, '/'))) slash[slash == dir] = '\0';
    p->dir = open(slash ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (place_check(p, e)) return -1;
    if (!out_sync_try(p, e)) return 0;
    out_place_free(p);
    return -1;
}

int out_place(const char *path, struct out_place *p, struct err *e) { return place_find(path, false, p, e); }

int out_place_over(const char *path, struct out_place *p, struct err *e) { return place_find(path, true, p, e); }

int out_place_in(int dir, const char *shown, const char *name, struct out_place *p, struct err *e)
{
    struct text t = {0};
    text_add(&t, "%s/%s", shown, name);
    *p = (struct out_place){.dir = fcntl(dir, F_DUPFD_CLOEXEC, 0), .path = t.s, .name = t.s + t.n - strlen(name)};
    return place_check(p, e);
}

void out_place_free(struct out_place *p)
{
    if (p->path && p->dir >= 0) close(p->dir);
    free(p->path);
    *p = (struct out_place)OUT_NOWHERE;
}

bool out_is_same(const struct out_place *a, const struct out_place *b)
{
    struct stat x, y;
    return a->path && b->path && strcmp(a->name, b->name) == 0 && !fstat(a->dir, &x) && !fstat(b->dir, &y) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- whole files ------------------------------------------------------------------------------------------------- */

static void aside_name(struct out *o)
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof r, 0) != sizeof r) r = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)o;
    snprintf(o->aside, sizeof o->aside, "%s%016llx.tmp", aside_prefix, (unsigned long long)r);
}

/* Makes a file with a random name. A name that exists belongs to another file. */
static void named_open(struct out *o)
{
    do {
        aside_name(o);
        o->fd = openat(o->at->dir, o->aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    } while (o->fd < 0 && errno == EEXIST);
}

static char *proc_name(const struct out *o, char buf[40])
{
    snprintf(buf, 40, "/proc/self/fd/%d", o->fd);
    return buf;
}

int out_begin(struct out *o, const struct out_place *at, const atomic_int *stop, struct err *e)
{
    *o = (struct out){.at = at, .stop = stop, .fd = -1};
    if (!at->named) o->fd = openat(at->dir, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    if (o->fd < 0) named_open(o);
    return o->fd < 0 ? err_set(e, E_CANTCREAT, "%s: cannot create: %s", at->path, strerror(errno)) : 0;
}

int out_scratch(struct out *o, const struct out_place *at, struct err *e)
{
    if (out_begin(o, at, NULL, e)) return -1;
    if (*o->aside && unlinkat(at->dir, o->aside, 0)) {
        err_set(e, E_CANTCREAT, "%s: cannot remove the name of a scratch file: %s", at->path, strerror(errno));
        out_drop(o);
        return -1;
    }
    *o->aside = '\0';
    return 0;
}

int out_write(struct out *o, const void *p, size_t n, struct err *e)
{
    enum { PIECE = 4 << 20 };                              /* bytes between two checks of the stop word */
    for (size_t done = 0; done < n;) {
        if (o->stop && atomic_load(o->stop)) return err_set(e, E_STOPPED, "%s: not written: stopped", o->at->path);
        size_t m = n - done < PIECE ? n - done : PIECE;
        ssize_t k = write(o->fd, (const char *)p + done, m);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return err_set(e, E_IO, "%s: %s", o->at->path, strerror(k < 0 ? errno : EIO));
        done += (size_t)k;
    }
    return 0;
}

int out_reserve(struct out *o, uint64_t bytes, struct err *e)
{
    int bad;
    do bad = bytes ? fallocate(o->fd, 0, 0, (off_t)bytes) : 0; while (bad && errno == EINTR);
    if (!bad || errno == EOPNOTSUPP || errno == ENOSYS) return 0;
    return err_set(e, E_IO, "%s: %s", o->at->path, strerror(errno));
}

/* Gives the file a random name in its folder. */
static int aside_link(struct out *o)
{
    char proc[40];
    int bad = 0;
    while (!*o->aside) {
        aside_name(o);
        bad = linkat(AT_FDCWD, proc_name(o, proc), o->at->dir, o->aside, AT_SYMLINK_FOLLOW);
        if (bad) *o->aside = '\0';
        if (bad && errno != EEXIST) break;
    }
    return bad;
}

static int copy(int from, int to)
{
    enum { PIECE = 1 << 20 };
    char *buf = mem_alloc(PIECE);
    off_t at = 0;
    for (ssize_t k; (k = pread(from, buf, PIECE, at)) != 0;) {
        if (k > 0) k = pwrite(to, buf, (size_t)k, at);
        if (k > 0) at += k;
        else if (errno != EINTR) break;
    }
    free(buf);
    return at == lseek(from, 0, SEEK_END) ? 0 : -1;
}

/* The file system may refuse links now, although it did not at the beginning. Then this copies the contents to a named
 * file. */
static int aside_copy(struct out *o)
{
    struct out named = {.at = o->at};
    named_open(&named);
    if (named.fd < 0) return -1;
    if (copy(o->fd, named.fd) || fsync(named.fd)) {
        int why = errno;
        out_drop(&named);
        errno = why;
        return -1;
    }
    close(o->fd);
    o->fd = named.fd;
    memcpy(o->aside, named.aside, sizeof o->aside);
    return 0;
}

/* Takes a trial file through the steps of a commit. So a folder that forbids one is found now, not when the file is
 * complete. Where a nameless file cannot get a name, files of this place have one from the beginning. */
static int way_try(struct out_place *p, struct err *e)
{
    struct out o, other;
    if (out_begin(&o, p, NULL, e)) return -1;
    if (aside_link(&o)) {
        p->named = true;
        out_drop(&o);
        if (out_begin(&o, p, NULL, e)) return -1;
    }
    close(o.fd);
    aside_name(&other);
    if (renameat(p->dir, o.aside, p->dir, other.aside)) {
        err_set(e, E_CANTCREAT, "%s: files cannot be renamed there: %s", p->path, strerror(errno));
        unlinkat(p->dir, o.aside, 0);
        return -1;
    }
    if (!unlinkat(p->dir, other.aside, 0)) return 0;
    return err_set(e, E_CANTCREAT, "%s: files cannot be removed there: %s; %s is left", p->path, strerror(errno),
                   other.aside);
}

/* Gives the file its own name, unless that exists. A nameless file gets it in one call, which leaves nothing beside it.
 * Without hard links, an empty file reserves the name first. */
static int fresh_name(struct out *o)
{
    char proc[40];
    if (!*o->aside && !linkat(AT_FDCWD, proc_name(o, proc), o->at->dir, o->at->name, AT_SYMLINK_FOLLOW)) return 0;
    if (!*o->aside && errno == EEXIST) return -1;
    if (aside_link(o) && aside_copy(o)) return -1;
    if (!linkat(o->at->dir, o->aside, o->at->dir, o->at->name, 0)) {
        unlinkat(o->at->dir, o->aside, 0);
        return 0;
    }
    if (errno == EEXIST) return -1;
    int fd = openat(o->at->dir, o->at->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    close(fd);
    if (!renameat(o->at->dir, o->aside, o->at->dir, o->at->name)) return 0;
    int why = errno;
    unlinkat(o->at->dir, o->at->name, 0);
    errno = why;
    return -1;
}

/* Renames the file, if possible, to a name that out_sweep leaves alone. */
static void aside_keep(struct out *o)
{
    char kept[sizeof o->aside + 8];
    snprintf(kept, sizeof kept, "%.*swhole", (int)(strlen(o->aside) - strlen("tmp")), o->aside);
    if (renameat(o->at->dir, o->aside, o->at->dir, kept)) {
        if (linkat(o->at->dir, o->aside, o->at->dir, kept, 0)) return;
        unlinkat(o->at->dir, o->aside, 0);
    }
    snprintf(o->aside, sizeof o->aside, "%s", kept);
}

/* Replaces the old file, which may have changed since the check. */
static int replace(struct out *o, struct err *e)
{
    if (aside_link(o) && aside_copy(o)) return err_set(e, E_CANTCREAT, "%s: %s", o->at->path, strerror(errno));
    if (out_stat(o->at, NULL, e)) return -1;
    if (!renameat(o->at->dir, o->aside, o->at->dir, o->at->name)) return 0;
    return err_set(e, E_CANTCREAT, "%s: %s", o->at->path, strerror(errno));
}

static int fresh_make(struct out *o, struct err *e)
{
    if (!fresh_name(o)) return 0;
    bool taken = errno == EEXIST;
    err_set(e, E_CANTCREAT, "%s: %s", o->at->path, strerror(errno));
    if (taken) out_drop(o);
    return -1;
}

/* A complete file is never discarded, whatever prevents its name. */
static void keep(struct out *o, struct err *e)
{
    struct err why = *e;
    if (!*o->aside) return;
    aside_keep(o);
    *e = (struct err){0};
    err_set(e, why.code, "%s; the new content is in %.*s%s", why.text, (int)(o->at->name - o->at->path),
            o->at->path, o->aside);
}

int out_sync(int fd)
{
    return fsync(fd) && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP ? -1 : 0;
}

/* Syncs the folder after the rename, so that the name survives a power cut. Opening the folder for that needs read
 * permission, which may be missing. */
static int folder_sync(const struct out_place *at, int code, struct err *e)
{
    int fd = openat(at->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad = 0;
    if (fd < 0) return errno == EACCES ? 0 : err_set(e, code, "%s: its folder: %s", at->path, strerror(errno));
    if (out_sync(fd)) bad = err_set(e, code, "%s: its folder cannot be synced: %s", at->path, strerror(errno));
    close(fd);
    return bad;
}

int out_sync_try(const struct out_place *at, struct err *e)
{
    struct out o;
    if (out_begin(&o, at, NULL, e)) return -1;
    int bad = fsync(o.fd) ? err_set(e, E_CANTCREAT, "%s: files cannot be synced there: %s", at->path, strerror(errno))
                          : folder_sync(at, E_CANTCREAT, e);
    out_drop(&o);
    return bad;
}

int out_commit(struct out *o, bool fresh, struct err *e)
{
    if (fsync(o->fd)) {
        err_set(e, E_IO, "%s: %s", o->at->path, strerror(errno));
        out_drop(o);
        return -1;
    }
    int bad = fresh ? fresh_make(o, e) : replace(o, e);
    if (bad) keep(o, e);
    if (o->fd >= 0) close(o->fd);
    o->fd = -1;
    return bad ? -1 : folder_sync(o->at, E_IO, e);
}

void out_drop(struct out *o)
{
    if (o->fd >= 0) close(o->fd);
    if (*o->aside) unlinkat(o->at->dir, o->aside, 0);
    o->fd = -1;
    *o->aside = '\0';
}

int out_link(int from, const char *name, int to, const char *other) { return linkat(from, name, to, other, 0); }

int out_file(const struct out_place *at, const struct text *t, bool fresh, struct err *e)
{
    struct out o;
    if (out_begin(&o, at, NULL, e)) return -1;
    if (!out_write(&o, t->s, t->n, e)) return out_commit(&o, fresh, e);
    out_drop(&o);
    return -1;
}

int out_file_named(const char *path, const struct text *t, bool fresh, struct err *e)
{
    struct out_place at;
    if (out_place(path, &at, e)) return -1;
    int bad = out_file(&at, t, fresh, e);
    out_place_free(&at);
    return bad;
}

/* Whether aside_name makes such names. */
static bool is_aside(int dir, const char *name)
{
    enum { PREFIX = sizeof aside_prefix - 1, DIGITS = 16 };
    struct stat st;
    return strncmp(name, aside_prefix, PREFIX) == 0 && strspn(name + PREFIX, "0123456789abcdef") == DIGITS &&
           strcmp(name + PREFIX + DIGITS, ".tmp") == 0 && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
           S_ISREG(st.st_mode);
}

void out_sweep(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d));)
        if (is_aside(dir, f->d_name)) unlinkat(dir, f->d_name, 0);
    closedir(d);
}
