#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files hold little-endian numbers, which are read as they are");

static int open_failed(const char *path, struct err *e)
{
    int code = errno == ENOENT || errno == ENOTDIR ? E_NOINPUT : errno == EACCES ? E_PERM : E_IO;
    return err_set(e, code, "%s: %s", path, strerror(errno));
}

int file_open(const char *path, uint64_t *size, struct err *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* a pipe without a writer must not hang us */
    if (fd < 0) return open_failed(path, e);
    if (fstat(fd, &st)) {
        err_set(e, E_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, E_DATA, "%s: is %s", path, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    } else {
        *size = (uint64_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

int file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(e, E_IO, "%s: offset %llu: %s", path, (unsigned long long)(offset + done), strerror(errno));
        if (got == 0)
            return err_set(e, E_DATA, "%s: offset %llu: the file ends here, %zu bytes too early", path,
                           (unsigned long long)(offset + done), n - done);
        done += (size_t)got;
    }
    return 0;
}
