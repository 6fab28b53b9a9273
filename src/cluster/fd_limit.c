/* The limit of open files (RLIMIT_NOFILE). */
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "cluster/fd_limit.h"

/* Counts open files without /proc. If that cannot be opened, the limit is small. */
static int count_each(void)
{
    enum { MOST = 1024 };
    int n = 0;
    for (int fd = 0; fd < MOST; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int open_now(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    if (!d) return count_each();
    for (const struct dirent *f; (f = readdir(d));) n += f->d_name[0] != '.';
    closedir(d);
    return n - 1;                                         /* without the descriptor of the folder itself */
}

/* Raises the limit. Returns how many more files can be opened, at most `more`. */
static int limit_raise(int more, int *open, rlim_t *limit)
{
    struct rlimit r;
    *open = open_now();
    if (getrlimit(RLIMIT_NOFILE, &r)) return more;
    rlim_t want = (rlim_t)*open + (rlim_t)more, soft = r.rlim_cur;
    if (soft < want) {
        r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
        if (!setrlimit(RLIMIT_NOFILE, &r)) soft = r.rlim_cur;
    }
    *limit = soft;
    return soft >= want ? more : soft > (rlim_t)*open ? (int)(soft - (rlim_t)*open) : 0;
}

void fd_limit_raise(int more)
{
    int open;
    rlim_t limit;
    limit_raise(more, &open, &limit);
}

int fd_limit_check(int more, struct err *e)
{
    int open;
    rlim_t limit = 0;
    if (!more) return 0;                       /* if a hundred ranks counted, each would also see the others' folders */
    if (limit_raise(more, &open, &limit) >= more) return 0;
    return err_set(e, E_OS, "the limit of open files, %llu (ulimit -n), is too low: %d are open, and a run needs %d "
                            "more", (unsigned long long)limit, open, more);
}
