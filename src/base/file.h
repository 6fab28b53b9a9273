/* Input files that may be hostile. Only regular files are opened. They are read by position, so a file that shrinks
 * meanwhile is an error and never a signal. Any thread. Every error text starts with the path. */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* Opens a regular file for reading and sets *size in bytes. Returns the descriptor, which the caller closes. -1: 66
 * if there is no such file, 65 for a directory or any other irregular file, 77 without permission, 74 otherwise. */
int file_open(const char *path, uint64_t *size, struct err *e);

/* Sets the error for a file or folder that could not be opened: errno, and a similar name in its folder. 66 if it does
 * not exist, 77 without permission, 74 otherwise. Returns -1. */
int file_missing(const char *path, struct err *e);

/* Reads exactly n bytes at an offset. 65 "PATH: offset N: ..." if the file ends before, 74 if reading fails. */
int file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, struct err *e);
/* Bytes that this process has read so far, by file_read_at or as reported to file_count. It shows whether a long scan
 * of files makes progress. Any thread. */
uint64_t file_bytes(void);
void file_count(size_t n);
#endif
