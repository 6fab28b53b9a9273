/* The pictures that a folder, a list file or tar archives name, their order and classes: for data.source = images.
 * Names are read once; no picture is opened. Any thread.
 *
 * A folder has DIR/CLASS/NAME.jpg or another picture name (picture_name), also in folders within CLASS: the layout and
 * order of torchvision's ImageFolder. Classes are numbered by name in byte order, and so are the files of a class,
 * folder by folder. Links are followed. Names that begin with a dot, files of operating systems (leftover_system) and
 * anything else are left out and counted.
 *
 * A list file has a line for each picture: its path, relative to the list's folder, a tab or blanks, and a label.
 * Labels are either all whole numbers, used as classes, or names, numbered like those of folders. Without labels a line
 * may be only a path. Instead of the tab, a comma or a semicolon may follow a picture's name, and both columns may be
 * quoted, as in CSV files. Ignored are empty lines, comments, which begin with #, and a header. A header is a first
 * line whose path is a word, while all others name pictures.
 *
 * Archives are NAME.tar, a pattern with that ending, or the lines of a list file; image_shards.c describes their
 * contents. */
#ifndef DATA_IMAGE_LIST_H
#define DATA_IMAGE_LIST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/leftover.h"

/* name: its offset in names; class -1: no label */
struct image { uint64_t name; int64_t class; };
struct image_place { int shard; uint64_t at, size; };    /* in an archive */
struct image_list {
    struct arena *mem;                                   /* owns the texts below */
    const char *path;                                    /* as given, for texts */
    const char *root;                                    /* prefix of relative names: "" or "DIR/" */
    struct text names;                                   /* each ends with a NUL */
    VEC(struct image) image;
    VEC(struct image_place) place;                       /* of each picture, if they are in archives */
    VEC(const char *) shard;                             /* the archives */
    struct leftover left;                                /* unused files */
    bool folder;                                         /* of classes or pictures; place is empty then */
    int raw_width, raw_height;                           /* not 0: pictures are raw bytes for picture_open_raw */
    /* Classes have names, unless a list numbers them: then class_name is NULL, n_classes the largest number plus
     * one. */
    int64_t n_classes;
    const char **class_name;
};

/* Reads the list. labels: each picture needs one. classes_of: the list whose class names and numbers apply; NULL: this
 * one. 66 if there is no such file, 65 "PATH..." for an error in the list or a folder without pictures, 74 if reading
 * fails. Call image_list_free also after a failure. */
int image_list_read(const char *path, bool labels, const char *classes_of, struct image_list *l, struct err *e);
/* Sets the class names of l, a list read without labels, to those of a folder or list. If it has none or cannot be
 * read, nothing changes. */
void image_list_classes(struct image_list *l, const char *classes_of);
/* Sets t to the picture's name in texts: its path, or "ARCHIVE: NAME". */
void image_list_path(const struct image_list *l, uint64_t i, struct text *t);
/* Opens the file with a picture: `size` bytes of fd from `at` on; path is its name in texts. The caller closes fd and
 * frees path. 66, 65, 74, 77 */
struct image_bytes { int fd; uint64_t at, size; struct text path; };
int image_list_open(const struct image_list *l, uint64_t i, struct image_bytes *b, struct err *e);
/* Keeps n pictures of a folder, which are sorted by class, evenly spaced, so that all classes keep their share. Other
 * lists, and those of at most n pictures, stay unchanged. 0: keep all. */
void image_list_spread(struct image_list *l, uint64_t n);
/* Checks that all pictures of a folder or a list exist, and that none is empty unless `skips`: 66, 65 with the number
 * and the first. Does not check archives. */
int image_list_check(const struct image_list *l, bool skips, struct err *e);
void image_list_free(struct image_list *l);
/* The same for a list in memory; names are relative to the folder of path. */
int image_list_parse(const char *path, const char *s, size_t n, bool labels, struct image_list *l, struct err *e);

#endif
