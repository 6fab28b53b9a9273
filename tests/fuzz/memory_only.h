/* For targets of parsers that read files by base/file.h alone: the input as a file that the kernel does not know, so
 * that an execution makes no system calls but those that close a descriptor which is none. The functions of base/file.h
 * are here in place of the library's; files are held by whoever made them until memory_file_end. */
#ifndef FUZZ_MEMORY_ONLY_H
#define FUZZ_MEMORY_ONLY_H
#include <stdio.h>
#include "base/file.h"
#include "refusal.h"

enum { MEMORY_FILES = 2, MEMORY_FD = 1 << 30 };           /* no process has that many descriptors */
static struct { bool used; const uint8_t *data; size_t size; } memory_files[MEMORY_FILES];

static struct memory_file memory_file_make(const uint8_t *data, size_t size)
{
    int i = memory_files[0].used;
    struct memory_file f = {.fd = MEMORY_FD + i};
    must(!memory_files[i].used);
    memory_files[i].used = true;
    memory_files[i].data = data;
    memory_files[i].size = size;
    snprintf(f.path, sizeof f.path, "memory-%d", i);
    return f;
}

static void memory_file_end(const struct memory_file *f) { memory_files[f->fd - MEMORY_FD].used = false; }

static int memory_file_of(const char *path)
{
    int i = path[strlen("memory-")] - '0';
    must(!strncmp(path, "memory-", strlen("memory-")) && i >= 0 && i < MEMORY_FILES && memory_files[i].used);
    return i;
}

int file_open(const char *path, uint64_t *size, struct err *e)
{
    int i = memory_file_of(path);
    *size = memory_files[i].size;
    return MEMORY_FD + i;
}

int file_read_at(int fd, const char *path, uint64_t offset, void *out, size_t n, struct err *e)
{
    int i = memory_file_of(path);
    size_t size = memory_files[i].size, there = offset < size ? size - offset : 0;
    if (there < n)
        return err_set(e, E_DATA, "%s: offset %llu: the file ends here, %zu bytes too early", path,
                       (unsigned long long)(offset + there), n - there);
    if (n) memcpy(out, memory_files[i].data + offset, n);
    return 0;
}

int file_missing(const char *path, struct err *e) { abort(); }
uint64_t file_bytes(void) { return 0; }
void file_count(size_t n) { }

#endif
