/* The members of a tar archive, read in place: nothing is unpacked. POSIX ustar and pax, GNU's long names and large
 * sizes. For data sets. Any thread.
 *
 * Archives are hostile: each header's checksum and each size is checked against the file first. Errors are 65 "PATH:
 * offset N: ...", and 66, 74, 77 as in file_open. A compressed archive, a sparse member and a member that continues in
 * another volume cannot be read in place: 65, too. */
#ifndef DATA_TAR_H
#define DATA_TAR_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* name: without a leading "./"; valid only during the call. at: offset of its bytes. fd: of the archive. link: the
 * bytes belong to another member, or are not in the archive. */
struct tar_member { const char *name; uint64_t at, size; int fd; bool link; };
/* Calls member for each regular file and each link, in order, until it fails. */
int tar_read(const char *path, int (*member)(void *ctx, const struct tar_member *m, struct err *e), void *ctx,
             struct err *e);

#endif
