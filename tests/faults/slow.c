/* A file that is slow to open, as on a disk of the network, for LD_PRELOAD: the first time that a process opens
 * MPSTAGED_SLOW by that name it waits MPSTAGED_SLOW_S seconds. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int slow_open(int dir, const char *path, int flags, mode_t mode)
{
    static atomic_int opened;
    const char *slow = getenv("MPSTAGED_SLOW"), *s = getenv("MPSTAGED_SLOW_S");
    if (slow && s && !strcmp(path, slow) && !atomic_fetch_add(&opened, 1)) sleep((unsigned)atoi(s));
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

#define MODE_OF(flags) __extension__ ({ mode_t m_ = 0; va_list ap_; \
    va_start(ap_, flags); if ((flags) & (O_CREAT | O_TMPFILE)) m_ = va_arg(ap_, mode_t); va_end(ap_); m_; })
int open(const char *path, int flags, ...) { return slow_open(AT_FDCWD, path, flags, MODE_OF(flags)); }
int open64(const char *path, int flags, ...) { return slow_open(AT_FDCWD, path, flags, MODE_OF(flags)); }
int openat(int dir, const char *path, int flags, ...) { return slow_open(dir, path, flags, MODE_OF(flags)); }
int openat64(int dir, const char *path, int flags, ...) { return slow_open(dir, path, flags, MODE_OF(flags)); }
