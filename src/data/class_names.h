/* What names of folders and classes say: whether they are parts of a data set rather than classes, and whether two are
 * one name in different forms of Unicode. Pure. For data sets and --init. */
#ifndef DATA_CLASS_NAMES_H
#define DATA_CLASS_NAMES_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* Of a folder's name such as Train, training, val_images or test2017: case, digits and words such as images or set do
 * not count. */
enum split { SPLIT_NONE, SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST };
enum split split_of(const char *name);

/* Do they differ, but not in Unicode's composed form, NFC? */
bool class_names_forms(const char *a, const char *b);

/* Adds a line for what is odd about n sorted names of classes. of: where they come from. */
void class_names_doubt(const char *const *name, int64_t n, const char *of, struct text *t);

#endif
