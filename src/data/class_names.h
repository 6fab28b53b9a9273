/* Examines names of folders and classes: whether they name parts of a data set rather than classes, and whether two
 * names are the same in different Unicode forms. Pure. For data sets and --init. */
#ifndef DATA_CLASS_NAMES_H
#define DATA_CLASS_NAMES_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* The part that a folder's name such as Train, training, val_images or test2017 means. Case, digits and words such as
 * images or set are ignored. */
enum split { SPLIT_NONE, SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST };
enum split split_of(const char *name);

/* Do the names differ, but not in Unicode's composed form NFC? */
bool class_names_forms(const char *a, const char *b);

/* Appends a line for oddities among n sorted class names. of: the source of the names. */
void class_names_doubt(const char *const *name, int64_t n, const char *of, struct text *t);

#endif
