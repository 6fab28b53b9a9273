/* For targets of parsers that open files: the input as a file in memory, which has a path, and what every refusal must
 * look like. */
#ifndef FUZZ_MEMORY_FILE_H
#define FUZZ_MEMORY_FILE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE                                      /* memfd_create */
#endif
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

struct memory_file { int fd; char path[32]; };

static inline struct memory_file memory_file_make(const uint8_t *data, size_t size)
{
    struct memory_file f = {.fd = memfd_create("input", MFD_CLOEXEC)};
    must(f.fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(f.fd, data + done, size - done);
        must(n > 0);
        done += (size_t)n;
    }
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

/* 65, and one line that begins with the path. */
static inline void refusal_check(const struct err *e, const struct memory_file *f)
{
    must(e->code == E_DATA && !strncmp(e->text, f->path, strlen(f->path)));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

#endif
