/* The documents of texts: a file is one document, or with the ending .jsonl one a line, {"text": ".."}. A folder has
 * the files *.txt and *.jsonl that lie in it, by name. Hidden files do not count. */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H
#include <stddef.h>
#include "base/err.h"
#include "base/mem.h"

/* A document of n bytes. line: of a file of records; 0: the whole file. Lives as long as the call. */
struct document { const char *file; long line; const char *s; size_t n; };
typedef int (*document_take)(void *ctx, const struct document *d, struct err *e);

/* Calls take for each document of a file or folder, in order, until it fails. A file of records may be larger than
 * memory. 66: it is missing; 65: no text, no such record, or a folder without texts; 74. */
int documents_read(const char *path, document_take take, void *ctx, struct err *e);
/* The same for the lines of a file that are not empty, without their ends; of a first one without a byte order mark. */
int document_lines_read(const char *file, document_take take, void *ctx, struct err *e);
/* Sets e to "FILE: why" or "FILE:LINE: why", with status 65; returns -1. */
int document_fail(const struct document *d, const char *why, struct err *e);

/* The files of a file or folder; the caller frees them. */
struct document_files { VEC(char *) of; };
int document_files_find(const char *path, struct document_files *out, struct err *e);
void document_files_free(struct document_files *f);

#endif
