/* For targets of parsers that read files: a file that holds the input, and what every refusal of one must look like. */
#ifndef FUZZ_REFUSAL_H
#define FUZZ_REFUSAL_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"

struct memory_file { int fd; char path[32]; };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool right) { if (!right) abort(); }

/* 65, and one line that begins with the path. */
static inline void refusal_check(const struct err *e, const struct memory_file *f)
{
    must(e->code == E_DATA && !strncmp(e->text, f->path, strlen(f->path)));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

#endif
