/* What a file is, by its first bytes, where something else was wanted: a page that a server sent, a pointer of Git LFS,
 * weights of another format. Pure but for file_kind_file; any thread. */
#ifndef BASE_FILE_KIND_H
#define BASE_FILE_KIND_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum { FILE_KIND_BYTES = 512 };

/* FILE_KIND_JSON and FILE_KIND_PLAIN: what may be right where text is wanted. */
enum file_kind_kind { FILE_KIND_OTHER, FILE_KIND_JSON, FILE_KIND_PLAIN, FILE_KIND_ZIP, FILE_KIND_PICKLE };
/* name: "an HTML page"; remedy: what helps, or NULL */
struct file_kind { const char *name, *remedy; enum file_kind_kind kind; };

/* What n bytes from the beginning of a file, of which FILE_KIND_BYTES suffice, say that it is; NULL: they do not say.
 * */
const struct file_kind *file_kind(const void *bytes, size_t n);

/* 65 where these bytes say what the file is: its path, what it is, what was wanted, and what helps. 0: they do not say,
 * or it is what was wanted. */
int file_kind_refuse(const char *path, const void *bytes, size_t n, const char *wanted, struct err *e);
/* The same of an open file of `size` bytes. A file that cannot be read says nothing. */
int file_kind_file(int fd, const char *path, uint64_t size, const char *wanted, struct err *e);
/* The same of a file where text is wanted. */
int file_kind_text(const char *path, const void *bytes, size_t n, struct err *e);
#endif
