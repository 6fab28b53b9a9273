/* What a data set does not use of what it was given: counted by reason, and named by the first one, so that a run can
 * say it once. For data sets. One thread at a time. */
#ifndef DATA_LEFTOVER_H
#define DATA_LEFTOVER_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* A file whose name is not that of a picture; a picture outside of the folders of classes; one that is hidden or that a
 * system has left; a label without a picture; one that lies apart from its picture, where other readers would not find
 * it; a line of a list that is a header or a comment; one that names a file of a format that is not read; a picture of
 * an archive that is a sample's second one, such as KEY.mask.png. */
enum leftover_why { LEFT_OTHER, LEFT_OUTSIDE, LEFT_SYSTEM, LEFT_LABEL, LEFT_APART, LEFT_LINE, LEFT_FORMAT, LEFT_DOTS,
                    LEFT_REASONS };
/* more: there are others, which were not counted. Begin with {0}, end with leftover_free. */
struct leftover { uint64_t n[LEFT_REASONS]; char *first[LEFT_REASONS]; bool more; };

/* l may be NULL: nothing is counted. */
void leftover_add(struct leftover *l, enum leftover_why why, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Counts the pictures in a folder that is passed over, and in those within it, up to a limit of files looked at. */
void leftover_folder(struct leftover *l, const char *path);
/* Adds a line for each reason that there is, without a line end behind the last. of: what it was given, for texts. */
void leftover_text(const struct leftover *l, const char *of, struct text *t);
void leftover_free(struct leftover *l);

/* Is it the name of a file or folder that systems leave beside data, such as @eaDir, __MACOSX or Thumbs.db? */
bool leftover_system(const char *name, size_t n);

#endif
