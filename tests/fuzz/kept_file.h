/* For targets of parsers that open files by name: a file in memory, which stays open and is written anew for each
 * input, and what a refusal must look like. */
#ifndef FUZZ_KEPT_FILE_H
#define FUZZ_KEPT_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool right) { if (!right) abort(); }

/* Its name, from which it can be read until the next call. */
static const char *kept_file(const uint8_t *data, size_t size)
{
    static char path[40];
    static int fd = -1;
    if (fd < 0) {
        must((fd = memfd_create("input", MFD_CLOEXEC)) >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    must(!ftruncate(fd, 0) && (!size || pwrite(fd, data, size, 0) == (ssize_t)size));
    return path;
}

/* One line that begins with the name. */
static inline void refused(const struct err *e, int code, const char *name)
{
    must((e->code == code || e->code == E_DATA) && !strncmp(e->text, name, strlen(name)));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

#endif
