/* The volumes that a folder or lists name, for data.source = nifti. No volume is opened. Any thread.
 *
 * A folder has the layout of the Medical Segmentation Decathlon: its dataset.json names volumes, their labels, and the
 * classes. No other file of it is considered (the archives are full of files "._NAME"). Names must stay within the
 * folder: absolute ones and those with ".." are refused. A list is a file with a path per line, relative to the list's
 * folder; empty lines are ignored. A file .nii or .nii.gz counts as a list of itself. */
#ifndef DATA_VOLUME_LIST_H
#define DATA_VOLUME_LIST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"

struct volume_file { const char *image, *label; };       /* label: NULL if not needed */
/* class_name: NULL, or of classes 0 to n_classes - 1 */
struct volume_list {
    struct arena *mem;
    const char *path;                                    /* the folder or list */
    VEC(struct volume_file) file;
    int64_t n_classes;
    const char **class_name;
};
/* LABELLED: with labels; BARE: the same volumes without labels; TESTS: the folder's unlabelled test volumes if any,
 * otherwise like BARE. */
enum volume_part { VOLUMES_LABELLED, VOLUMES_BARE, VOLUMES_TESTS };
/* labels: the list of label files; NULL for a folder, which names them. 66 if a file is missing, 65 "PATH: ..." for an
 * error in it. Call volume_list_free also after a failure. */
int volume_list_read(const char *images, const char *labels, enum volume_part part, struct volume_list *l,
                     struct err *e);
bool volume_list_folder(const char *path);               /* is it a folder? */
/* The same for a dataset.json in memory; names are relative to the folder of path. */
int volume_list_json(const char *path, const char *s, size_t n, enum volume_part part, struct volume_list *l,
                     struct err *e);
/* Keeps the volumes of one fold (inside), or all others. The k-th by name is in fold k mod folds. */
void volume_list_fold(struct volume_list *l, int64_t folds, int64_t fold, bool inside);
void volume_list_free(struct volume_list *l);

#endif
