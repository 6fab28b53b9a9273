/* The members of a tar archive, which are read in place: nothing is unpacked. POSIX ustar and pax, GNU's long names and
 * large sizes. For data sets. Any thread.
 *
 * Archives are hostile: each header's checksum and each size is compared with the file before anything is believed.
 * Errors are 65 "PATH: offset N: ...", and 66, 74, 77 as of file_open. A compressed archive, a sparse member and one
 * that goes on in another volume cannot be read in place: 65, too. */
#ifndef DATA_TAR_H
#define DATA_TAR_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* name: without "./" at its beginning; it is gone after the call. at: offset of its bytes. fd: of the archive. link:
 * the bytes are another member's, or are not in the archive. */
struct tar_member { const char *name; uint64_t at, size; int fd; bool link; };
/* Calls member for each regular file and each link, in their order, until it fails. */
int tar_read(const char *path, int (*member)(void *ctx, const struct tar_member *m, struct err *e), void *ctx,
             struct err *e);

#endif
