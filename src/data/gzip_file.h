/* Input files, possibly packed by gzip, read sequentially. Unpacking sets no limit, so callers compare planned
 * allocations with gzip_most. For data sets. One thread at a time. Errors are 65 "PATH: offset N: ...", 66 or 74;
 * offsets count unpacked bytes. */
#ifndef DATA_GZIP_FILE_H
#define DATA_GZIP_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>
#include "base/err.h"

/* path: the caller's. size: of the file on disk. at: of the next byte. packed: the file begins like a gzip file. The
 * rest is private to gzip_file.c: the input, up to byte `read` of the file, and whether a packed part has ended. */
struct gzip_file {
    const char *path;
    int fd;
    uint64_t at, size, read;
    bool packed, open, ended;
    uint8_t *input;
    z_stream z;
};
/* least: minimum number of bytes. wanted: the expected type, for errors about files of another known type. Call
 * gzip_close also after a failure; before gzip_open f must be {0}. */
int gzip_open(const char *path, uint64_t least, const char *wanted, struct gzip_file *f, struct err *e);
/* Upper bound of the unpacked bytes: deflate makes at most 1032 from one. */
uint64_t gzip_most(const struct gzip_file *f);
int gzip_read(struct gzip_file *f, void *out, uint64_t n, struct err *e);  /* all n bytes, or an error */
int gzip_skip(struct gzip_file *f, uint64_t n, struct err *e);
/* Reads one more byte; the end of a packed file checks its checksum. 1: got one; 0: end; -1: damaged */
int gzip_more(struct gzip_file *f, struct err *e);
int gzip_fail(const struct gzip_file *f, uint64_t at, const char *what, struct err *e);  /* 65; returns -1 */
void gzip_close(struct gzip_file *f);

#endif
