#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/suggest.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files hold little-endian numbers, which are read as they are");

/* Finds the name most similar to that of the path among the first MOST entries of its folder. */
static void near_find(const char *path, char near[NAME_MAX + 1])
{
    enum { MOST = 10000 };
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? mem_strdup(path) : mem_strdup(".");
    if (slash) folder[slash == path ? 1 : slash - path] = 0;
    DIR *dir = *name ? opendir(folder) : NULL;
    struct suggest s = suggest_begin(name, strlen(name));
    for (int i = 0; dir && i < MOST; i++) {
        const struct dirent *d = readdir(dir);
        if (!d) break;
        if (strcmp(d->d_name, name) && suggest_try(&s, d->d_name, strlen(d->d_name), 0))
            snprintf(near, NAME_MAX + 1, "%s", d->d_name);
    }
    if (dir) closedir(dir);
    free(folder);
}

int file_missing(const char *path, struct err *e)
{
    int why = errno;
    const bool none = why == ENOENT || why == ENOTDIR || why == ELOOP || why == ENAMETOOLONG;
    const int code = none ? E_NOINPUT : why == EACCES ? E_PERM : E_IO;
    char near[NAME_MAX + 1] = "";
    if (why == ENOENT) near_find(path, near);
    return err_set(e, code, "%s: %s%s%s%s", path, strerror(why), *near ? " (did you mean " : "", near,
                   *near ? "?)" : "");
}

int file_open(const char *path, uint64_t *size, struct err *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* a pipe without a writer must not block us */
    if (fd < 0) return file_missing(path, e);
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

static _Atomic uint64_t bytes;

uint64_t file_bytes(void) { return atomic_load(&bytes); }
void file_count(size_t n) { atomic_fetch_add(&bytes, n); }

int file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(e, E_IO, "%s: offset %llu: %s", path, (unsigned long long)(offset + done), strerror(errno));
        if (got == 0)
            return err_set(e, E_DATA, "%s: offset %llu: the file ends here, %zu byte%s too early", path,
                           (unsigned long long)(offset + done), n - done, n - done == 1 ? "" : "s");
        done += (size_t)got;
        file_count((size_t)got);
    }
    return 0;
}
