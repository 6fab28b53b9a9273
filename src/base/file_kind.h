/* Recognises a file by its first bytes, when it is not of the expected type: a web page from a server, a Git LFS
 * pointer, weights of another format. Only file_kind_file reads; the rest is pure. Any thread. */
#ifndef BASE_FILE_KIND_H
#define BASE_FILE_KIND_H
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum { FILE_KIND_BYTES = 512 };

/* FILE_KIND_JSON and FILE_KIND_PLAIN may be right where text is expected. */
enum file_kind_kind { FILE_KIND_OTHER, FILE_KIND_JSON, FILE_KIND_PLAIN, FILE_KIND_ZIP, FILE_KIND_PICKLE };
/* name: "an HTML page"; remedy: what helps, or NULL */
struct file_kind { const char *name, *remedy; enum file_kind_kind kind; };

/* Recognises a file by its first n bytes; FILE_KIND_BYTES suffice. NULL: unknown. */
const struct file_kind *file_kind(const void *bytes, size_t n);

/* Fails (65) if the bytes show another type than `wanted`. The text has the path, the type found, the type expected and
 * a remedy. 0: unknown, or the expected type. */
int file_kind_refuse(const char *path, const void *bytes, size_t n, const char *wanted, struct err *e);
/* The same for an open file of `size` bytes. 0 also if it cannot be read. */
int file_kind_file(int fd, const char *path, uint64_t size, const char *wanted, struct err *e);
/* The same for a file that must be text. */
int file_kind_text(const char *path, const void *bytes, size_t n, struct err *e);
#endif
