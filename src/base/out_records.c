/* Files that grow by records: metrics, logs, event files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/out.h"

/* AHEAD: bytes kept for the records that say how a run ended; they are asked for again when fewer than LESS are
 * left. */
enum { AHEAD = 64 << 10, LESS = 32 << 10 };

int out_records_open(struct out_records *r, int dir, const char *shown, const char *name, struct err *e)
{
    struct text t = {0};
    text_add(&t, "%s/%s", shown, name);
    *r = (struct out_records){.path = t.s};
    r->fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    return r->fd < 0 ? err_set(e, E_CANTCREAT, "%s: cannot create: %s", r->path, strerror(errno)) : 0;
}

/* Takes blocks behind the end of the file, if the file system can. */
static int room_ahead(struct out_records *r, uint64_t end)
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
        if (done && ftruncate(r->fd, (off_t)r->size)) why = errno;   /* removes half a record */
        errno = why;
        return -1;
    }
    r->size += n;
    return 0;
}

int out_records_add(struct out_records *r, const void *p, size_t n, bool last, struct err *e)
{
    if ((last || !room_ahead(r, r->size + n)) && !add(r, p, n)) return 0;
    return err_set(e, E_IO, "%s: %s", r->path, strerror(errno));
}

void out_records_close(struct out_records *r)
{
    if (!r->path) return;
    /* the blocks ahead are freed; if that fails, they stay unused */
    if (r->fd >= 0 && r->reserved && ftruncate(r->fd, (off_t)r->size)) r->reserved = 0;
    if (r->fd >= 0) close(r->fd);
    free(r->path);
    *r = (struct out_records){.fd = -1};
}
