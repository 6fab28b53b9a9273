/* Which volumes a folder or lists name, for data.source = nifti. No volume is opened. Any thread.
 *
 * A folder is one of the Medical Segmentation Decathlon: its dataset.json names volumes and their labels, and the
 * classes. Nothing else in it is looked at (its archives are full of files "._NAME"), and what a name means lies in the
 * folder: absolute names and those with ".." are refused. A list is a file with a path a line, which is relative to the
 * list's folder; empty lines do not count. A file .nii or .nii.gz is a list of itself. */
#ifndef DATA_VOLUME_LIST_H
#define DATA_VOLUME_LIST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"

struct volume_file { const char *image, *label; };       /* label: NULL where none is wanted */
/* class_name: NULL, or of classes 0 to n_classes - 1 */
struct volume_list {
    struct arena *mem;
    const char *path;                                    /* what named them */
    VEC(struct volume_file) file;
    int64_t n_classes;
    const char **class_name;
};
/* LABELLED: with labels; BARE: the same volumes without them; TESTS: those that a folder has for tests, which have no
 * labels, if there are any, otherwise as BARE. */
enum volume_part { VOLUMES_LABELLED, VOLUMES_BARE, VOLUMES_TESTS };
/* labels: the list of label files; NULL for a folder, which names them. 66 if a file is missing, 65 "PATH: ..." where
 * what it says is wrong. volume_list_free also after a failure. */
int volume_list_read(const char *images, const char *labels, enum volume_part part, struct volume_list *l,
                     struct err *e);
bool volume_list_folder(const char *path);               /* is it a folder? */
/* The same of a dataset.json in memory, which lies in the folder of path. */
int volume_list_json(const char *path, const char *s, size_t n, enum volume_part part, struct volume_list *l,
                     struct err *e);
/* Leaves the volumes of one fold, or all others: the k-th by name is in fold k mod folds. */
void volume_list_fold(struct volume_list *l, int64_t folds, int64_t fold, bool inside);
void volume_list_free(struct volume_list *l);

#endif
