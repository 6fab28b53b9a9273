/* Input files that may be packed by gzip, read from the front to the end: what unpacks them bounds nothing, so callers
 * compare what they are about to allocate with gzip_most. For data sets. One thread at a time. Errors are 65
 * "PATH: offset N: ...", 66 or 74; an offset is one of the unpacked bytes. */
#ifndef DATA_GZIP_FILE_H
#define DATA_GZIP_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>
#include "base/err.h"

/* path: the caller's; size: of the file on disk; at: of the next byte; packed: it begins as gzip files do; the rest is
 * gzip_file.c's own: the input that was read, up to byte `read` of the file, and where a packed part has ended */
struct gzip_file {
    const char *path;
    int fd;
    uint64_t at, size, read;
    bool packed, open, ended;
    uint8_t *input;
    z_stream z;
};
/* least: bytes without which it is no such file; wanted: what it should be, where it is known to be something else.
 * gzip_close also after a failure, of one that was {0} before. */
int gzip_open(const char *path, uint64_t least, const char *wanted, struct gzip_file *f, struct err *e);
/* How many bytes it can hold at most: deflate makes no more than 1032 of one. */
uint64_t gzip_most(const struct gzip_file *f);
int gzip_read(struct gzip_file *f, void *out, uint64_t n, struct err *e);  /* all of them, or it is an error */
int gzip_skip(struct gzip_file *f, uint64_t n, struct err *e);
/* Reads on by one byte, which at the end of a packed file checks its checksum. 1: there is one; 0: none; -1: damaged */
int gzip_more(struct gzip_file *f, struct err *e);
int gzip_fail(const struct gzip_file *f, uint64_t at, const char *what, struct err *e);  /* 65; -1 */
void gzip_close(struct gzip_file *f);

#endif
