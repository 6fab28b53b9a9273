/* Input files that may be hostile: only regular files are opened, and they are read by position, so that a file that
 * shrinks meanwhile is an error and never a signal. Any thread. Every error text starts with the path. */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* Opens a regular file for reading and says its size in bytes. Returns the descriptor, which the caller closes, or -1:
 * 66 if there is no such file, 65 for a directory or anything else that is not a file, 77 without permission, 74
 * otherwise. */
int file_open(const char *path, uint64_t *size, struct err *e);

/* What to say where opening a file or folder has failed: errno, and a name in its folder that is near to it. 66 if it
 * is not there, 77 without permission, 74 otherwise. Returns -1. */
int file_missing(const char *path, struct err *e);

/* Reads exactly n bytes at an offset. 65 "PATH: offset N: ..." if the file ends before, 74 if reading fails. */
int file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, struct err *e);
/* How many bytes this process has read so far, by file_read_at or as others say: whether a long look at files gets on.
 * Any thread. */
uint64_t file_bytes(void);
void file_count(size_t n);
#endif
