/* For LD_PRELOAD: a system that has no files without names, so that no rank can read another's memory in place. */
#include <errno.h>

int memfd_create(const char *name, unsigned flags);
int memfd_create(const char *name, unsigned flags)
{
    (void)name;
    (void)flags;
    errno = ENOSYS;
    return -1;
}
