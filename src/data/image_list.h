/* Which pictures a folder, a list file or tar archives name, in which order, and of which classes: for data.source =
 * images. Names are read once; no picture is opened. Any thread.
 *
 * A folder is DIR/CLASS/NAME.jpg or another name of a picture (picture_name), also in folders within CLASS: what
 * torchvision's ImageFolder takes, in its order. Classes are numbered by their names in the order of bytes, and so are
 * the files of a class, folder by folder. Links are followed. What begins with a dot, what systems leave
 * (leftover_system) and anything else is left out and counted.
 *
 * A list file has a line for each picture: its path, which is relative to the list's folder, a tab or blanks, and a
 * label. Labels are either all whole numbers, the classes' own, or names, which are numbered like those of folders.
 * Where no labels are wanted a line may be a path alone. Instead of the tab there may be a comma or a semicolon behind
 * the name of a picture, and both columns may be quoted, as in CSV files. Empty lines do not count, nor do comments,
 * which begin with #, and a header: a first line whose path is a word, while all others name pictures.
 *
 * Archives are NAME.tar, a pattern that ends so, or the lines of a list file; image_shards.c says what is in them. */
#ifndef DATA_IMAGE_LIST_H
#define DATA_IMAGE_LIST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/leftover.h"

/* name: where it begins in names; class -1: there is no label */
struct image { uint64_t name; int64_t class; };
struct image_place { int shard; uint64_t at, size; };    /* in an archive */
struct image_list {
    struct arena *mem;                                   /* owns the texts below */
    const char *path;                                    /* as given, for texts */
    const char *root;                                    /* what comes before relative names: "" or "DIR/" */
    struct text names;                                   /* each ends with a NUL */
    VEC(struct image) image;
    VEC(struct image_place) place;                       /* of each picture, where they are in archives */
    VEC(const char *) shard;                             /* the archives */
    struct leftover left;                                /* what is not used */
    bool folder;                                         /* of classes or pictures; place is empty then */
    int raw_width, raw_height;                           /* not 0: pictures are bytes, as picture_open_raw takes them */
    /* Classes have names, unless a list numbers them: then class_name is NULL, n_classes one more than the largest. */
    int64_t n_classes;
    const char **class_name;
};

/* Reads it. labels: each picture needs one. classes_of: what numbers the classes, by
 * whose names these pictures are sorted in; NULL: this one does. 66 if there is no such file, 65 "PATH..." where the
 * list is wrong or a folder has no pictures, 74 where reading fails. image_list_free also after a failure. */
int image_list_read(const char *path, bool labels, const char *classes_of, struct image_list *l, struct err *e);
/* The names of the classes of a folder or list, for pictures that need no labels: l, which has been read so, gets them.
 * Where there are none, or it cannot be read, nothing changes. */
void image_list_classes(struct image_list *l, const char *classes_of);
/* What texts call a picture: its path, or "ARCHIVE: NAME"; t is emptied before. */
void image_list_path(const struct image_list *l, uint64_t i, struct text *t);
/* Opens what holds a picture: its bytes are `size` of fd from `at` on; path is what texts call it. The caller closes fd
 * and frees path. 66, 65, 74, 77 */
struct image_bytes { int fd; uint64_t at, size; struct text path; };
int image_list_open(const struct image_list *l, uint64_t i, struct image_bytes *b, struct err *e);
/* Of a folder, whose pictures come class by class, n of them stay, as far apart as may be, so that all classes keep
 * their part; other lists stay as they are, and so do those of n pictures or fewer. 0: all stay. */
void image_list_spread(struct image_list *l, uint64_t n);
/* Looks whether all pictures of a folder or a list are there, and none is empty unless `skips`: 66, 65 with the number
 * and the first. Of archives nothing is looked at. */
int image_list_look(const struct image_list *l, bool skips, struct err *e);
void image_list_free(struct image_list *l);
/* The same of a list in memory; path: whose folder the names are relative to. */
int image_list_parse(const char *path, const char *s, size_t n, bool labels, struct image_list *l, struct err *e);

#endif
