/* Unused files of a data set, counted by reason with the first name, so that a run can report them once. For data sets.
 * One thread at a time. */
#ifndef DATA_LEFTOVER_H
#define DATA_LEFTOVER_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* In this order: a file without a picture's name; a picture outside the class folders; a hidden picture or one left by
 * an operating system; a label without a picture; a label apart from its picture, where other readers would not find
 * it; a header or comment in a list; a file of an unsupported format; a second picture of a sample in an archive, such
 * as KEY.mask.png. */
enum leftover_why { LEFT_OTHER, LEFT_OUTSIDE, LEFT_SYSTEM, LEFT_LABEL, LEFT_APART, LEFT_LINE, LEFT_FORMAT, LEFT_DOTS,
                    LEFT_REASONS };
/* more: there are others that were not counted. Begin with {0}, end with leftover_free. */
struct leftover { uint64_t n[LEFT_REASONS]; char *first[LEFT_REASONS]; bool more; };

/* l may be NULL: no counting. */
void leftover_add(struct leftover *l, enum leftover_why why, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Counts the pictures in an ignored folder, recursively, up to a limit of entries. */
void leftover_folder(struct leftover *l, const char *path);
/* Appends a line for each reason that occurs, without a final line end. of: the data set's name for texts. */
void leftover_text(const struct leftover *l, const char *of, struct text *t);
void leftover_free(struct leftover *l);

/* Does a system leave files or folders of this name beside data, such as @eaDir, __MACOSX or Thumbs.db? */
bool leftover_system(const char *name, size_t n);

#endif
