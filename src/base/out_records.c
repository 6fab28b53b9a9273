#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/out.h"

/* AHEAD: bytes reserved for the records that describe the end of a run. They are reserved again when fewer than LESS
 * are left. */
enum { AHEAD = 64 << 10, LESS = 32 << 10 };

int out_records_open(struct out_records *r, int dir, const char *shown, const char *name, struct err *e)
{
    struct text t = {0};
    text_add(&t, "%s/%s", shown, name);
    *r = (struct out_records){.path = t.s};
    r->fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    return r->fd < 0 ? err_set(e, E_CANTCREAT, "%s: cannot create: %s", r->path, strerror(errno)) : 0;
}

/* Finds the end of the last whole line. A killed process may have left a partial one. */
static int lines_end(int fd, off_t size, off_t *end)
{
    char piece[4096];
    for (*end = size; *end > 0;) {
        size_t n = *end < (off_t)sizeof piece ? (size_t)*end : sizeof piece;
        ssize_t k = pread(fd, piece, n, *end - (off_t)n);
        if (k < 0 && errno == EINTR) continue;
        if (k != (ssize_t)n) return -1;
        for (; n; n--, --*end) if (piece[n - 1] == '\n') return 0;
    }
    return 0;
}

int out_records_append(struct out_records *r, int dir, const char *shown, const char *name, bool *had, struct err *e)
{
    struct text t = {0};
    struct stat st;
    off_t end = 0;
    int fd = openat(dir, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *had = fd >= 0;
    if (fd < 0 && errno == ENOENT) return out_records_open(r, dir, shown, name, e);
    text_add(&t, "%s/%s", shown, name);
    *r = (struct out_records){.path = t.s, .fd = fd};
    if (fd < 0) return err_set(e, E_CANTCREAT, "%s: %s", r->path, strerror(errno));
    if (fstat(fd, &st)) return err_set(e, E_IO, "%s: %s", r->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(e, E_CANTCREAT, "%s: is %s, not a file", r->path, out_kind(st.st_mode));
    if (lines_end(fd, st.st_size, &end) || ftruncate(fd, end))
        return err_set(e, E_IO, "%s: %s", r->path, strerror(errno));
    r->size = (uint64_t)end;
    return 0;
}

int out_records_cut(struct out_records *r, out_drop_fn *drop, void *ctx, struct err *e)
{
    char piece[4097];
    off_t end = (off_t)r->size, at = end;
    while (end > 0) {
        const size_t n = end < 4096 ? (size_t)end : 4096;
        size_t from = n - 1;
        if (pread(r->fd, piece, n, end - (off_t)n) != (ssize_t)n)
            return err_set(e, E_IO, "%s: cannot be read", r->path);
        piece[n] = 0;
        while (from > 0 && piece[from - 1] != '\n') from--;
        at = end - (off_t)(n - from);
        if (!drop(ctx, piece + from, at == 0)) break;
        end = at;
    }
    if (end == (off_t)r->size) return 0;
    r->size = (uint64_t)end;
    r->reserved = 0;
    return ftruncate(r->fd, end) ? err_set(e, E_IO, "%s: %s", r->path, strerror(errno)) : 0;
}

/* Reserves blocks past the end of the file, if the file system can. */
static int space_ahead(struct out_records *r, uint64_t end)
{
    struct rlimit most;
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && end + LESS > most.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    if (r->reserved >= end + LESS) return 0;
    int bad;
    do bad = fallocate(r->fd, FALLOC_FL_KEEP_SIZE, (off_t)r->size, (off_t)(end - r->size + AHEAD));
    while (bad && errno == EINTR);
    if (bad && errno != EOPNOTSUPP && errno != ENOSYS) return -1;
    r->reserved = end + AHEAD;
    return 0;
}

static int add(struct out_records *r, const char *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(r->fd, p + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k > 0) { done += (size_t)k; continue; }
        int why = k < 0 ? errno : EIO;
        struct stat st;
        /* removes a partial record; another process may have shortened the file, so use its current size */
        if (done && (fstat(r->fd, &st) || ftruncate(r->fd, st.st_size - (off_t)done))) why = errno;
        errno = why;
        return -1;
    }
    r->size += n;
    return 0;
}

int out_records_add(struct out_records *r, const void *p, size_t n, bool last, struct err *e)
{
    if ((last || !space_ahead(r, r->size + n)) && !add(r, p, n)) return 0;
    return err_set(e, E_IO, "%s: %s", r->path, strerror(errno));
}

/* Frees the reserved blocks. If that fails, they stay unused. */
static void end_at(const struct out_records *r)
{
    struct stat st;
    if (r->fd < 0) return;
    if (r->reserved && !fstat(r->fd, &st) && ftruncate(r->fd, st.st_size)) errno = 0;
    close(r->fd);
}

int out_records_reopen(struct out_records *r, int dir, const char *name, struct err *e)
{
    struct stat st;
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) return err_set(e, E_CANTCREAT, "%s: cannot create: %s", r->path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, E_CANTCREAT, "%s: is not a regular file", r->path);
    }
    end_at(r);
    r->fd = fd;
    r->size = (uint64_t)st.st_size;
    r->reserved = 0;
    return 0;
}

void out_records_close(struct out_records *r)
{
    if (!r->path) return;
    end_at(r);
    free(r->path);
    *r = (struct out_records){.fd = -1};
}
