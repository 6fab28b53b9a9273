#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/out.h"

static const char making[] = ".tmp";

static int fail(const struct out_folder *f, int code, const char *what, struct err *e)
{
    int why = errno;
    return err_set(e, code, "%s/%s: %s%s", f->shown, f->name, what, strerror(why));
}

static int folder_make(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e)
{
    *f = (struct out_folder){.dir = fcntl(dir, F_DUPFD_CLOEXEC, 0), .fd = -1};
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->aside, sizeof f->aside, "%s%s", name, making);
    f->shown = mem_strdup(shown);
    return f->dir < 0 ? fail(f, E_CANTCREAT, "", e) : 0;
}

static int folder_enter(struct out_folder *f, struct err *e)
{
    f->fd = openat(f->dir, f->aside, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return f->fd < 0 ? fail(f, E_CANTCREAT, "cannot open the temporary folder: ", e) : 0;
}

/* Removes a folder and its regular files. Anything else in it makes this fail, and the text names it. */
static int folder_clear(int dir, const char *shown, const char *name, struct err *e)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : err_set(e, E_CANTCREAT, "%s/%s: %s", shown, name, strerror(errno));
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_set(e, E_CANTCREAT, "%s/%s: %s", shown, name, strerror(ENOMEM));
    }
    int bad = 0;
    for (struct dirent *f; !bad && (f = readdir(d));) {
        struct stat st;
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..")) continue;
        if (!fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) && !S_ISREG(st.st_mode))
            bad = err_set(e, E_CANTCREAT, "%s/%s/%s: is %s, not a regular file", shown, name, f->d_name,
                          out_kind(st.st_mode));
        else if (unlinkat(fd, f->d_name, 0) && errno != ENOENT)
            bad = err_set(e, E_CANTCREAT, "%s/%s/%s: %s", shown, name, f->d_name, strerror(errno));
    }
    closedir(d);
    if (bad) return -1;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: %s", shown, name, strerror(errno));
}

int out_folder_begin(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e)
{
    if (folder_make(f, dir, shown, name, e)) return -1;
    if (folder_clear(f->dir, f->shown, f->aside, e)) return -1;
    if (mkdirat(f->dir, f->aside, 0777)) return fail(f, E_CANTCREAT, "cannot create: ", e);
    return folder_enter(f, e);
}

int out_folder_join(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e)
{
    return folder_make(f, dir, shown, name, e) ? -1 : folder_enter(f, e);
}

static int sync_of(const struct out_folder *f, int fd, struct err *e)
{
    return out_sync(fd) ? fail(f, E_IO, "its folder: ", e) : 0;
}

/* Makes renames in the folder survive a power cut, before any later operation. */
static int parent_sync(const struct out_folder *f, struct err *e)
{
    int parent = openat(f->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = parent < 0 ? fail(f, E_IO, "its folder: ", e) : sync_of(f, parent, e);
    if (parent >= 0) close(parent);
    return bad;
}

int out_folder_commit(struct out_folder *f, struct err *e)
{
    int bad = sync_of(f, f->fd, e);
    if (!bad && renameat(f->dir, f->aside, f->dir, f->name))
        bad = err_set(e, E_CANTCREAT, "%s/%s: %s; the new content is in %s/%s", f->shown, f->name, strerror(errno),
                      f->shown, f->aside);
    if (!bad) bad = parent_sync(f, e);
    out_folder_close(f);
    return bad ? -1 : 0;
}

int out_folder_try(int dir, const char *shown, struct err *e)
{
    struct out_folder f = {.dir = -1, .fd = -1};
    struct out_place at = OUT_NOWHERE;
    char name[sizeof f.name], aside[sizeof f.aside];
    /* a unique name: other processes may try at the same time, also on other hosts */
    snprintf(name, sizeof name, ".mpstaged-trial-%lx-%llx", (long)getpid(), (unsigned long long)clock_ns());
    snprintf(aside, sizeof aside, "%s%s", name, making);
    int bad = out_folder_begin(&f, dir, shown, name, e) || out_place_in(f.fd, shown, name, &at, e) ||
              out_sync_try(&at, e);
    out_place_free(&at);
    int full = bad ? errno : 0;
    if (bad) out_folder_close(&f);
    if (!bad && !out_folder_commit(&f, e) && !out_folder_remove(dir, shown, name, e)) return 0;
    if (!bad) full = errno;
    struct err why = *e, none = {0};
    folder_clear(dir, shown, aside, &none);
    *e = (struct err){0};
    if (full == ENOSPC || full == EDQUOT) return 0;
    const int code = full == EIO ? E_IO : E_CANTCREAT;   /* a disk may be back when a supervisor tries again */
    return err_set(e, code, "%s: a run cannot create its output there: %s", shown, why.text);
}

void out_folder_drop(struct out_folder *f)
{
    struct err none = {0};
    if (f->dir >= 0) folder_clear(f->dir, f->shown, f->aside, &none);
    out_folder_close(f);
}

void out_folder_close(struct out_folder *f)
{
    if (f->shown && f->fd >= 0) close(f->fd);
    if (f->shown && f->dir >= 0) close(f->dir);
    free(f->shown);
    *f = (struct out_folder){.dir = -1, .fd = -1};
}

int out_folder_remove(int dir, const char *shown, const char *name, struct err *e)
{
    struct out_folder f;
    int bad = folder_make(&f, dir, shown, name, e) || folder_clear(f.dir, shown, f.aside, e);
    /* overlayfs cannot rename a folder of a lower layer: clear that one in place */
    if (!bad && renameat(f.dir, f.name, f.dir, f.aside))
        bad = errno == ENOENT ? 0 : errno == EXDEV ? folder_clear(f.dir, shown, name, e) : fail(&f, E_CANTCREAT, "", e);
    else if (!bad) bad = parent_sync(&f, e);
    if (!bad) bad = folder_clear(f.dir, shown, f.aside, e);
    out_folder_close(&f);
    return bad ? -1 : 0;
}

int out_folder_aside(int dir, const char *shown, const char *name, struct err *e)
{
    char old[80];
    snprintf(old, sizeof old, "%s" OUT_FOLDER_ASIDE, name);
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW)) return 0;
    if (faccessat(dir, old, F_OK, AT_SYMLINK_NOFOLLOW) && !renameat(dir, name, dir, old)) return 1;
    return err_set(e, E_CANTCREAT, "%s/%s: is in the way and cannot become %s: move it away", shown, name, old);
}

void out_folder_sweep(int dir, const char *prefix)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d));) {
        size_t n = strlen(f->d_name), tail = sizeof making - 1;
        struct err none = {0};
        if (n > tail && !strncmp(f->d_name, prefix, strlen(prefix)) && !strcmp(f->d_name + n - tail, making))
            folder_clear(dir, "", f->d_name, &none);
    }
    closedir(d);
}
