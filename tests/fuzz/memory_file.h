/* For targets of parsers that open files: the input as a file in memory, which has a path. */
#ifndef FUZZ_MEMORY_FILE_H
#define FUZZ_MEMORY_FILE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE                                      /* memfd_create */
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "refusal.h"

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

#endif
