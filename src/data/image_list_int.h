/* Internals of image lists. Only for image_list.c (folders, list files), image_shards.c (tar archives) and
 * ds_cifar.c. */
#ifndef DATA_IMAGE_LIST_INT_H
#define DATA_IMAGE_LIST_INT_H
#include "data/image_list.h"

typedef VEC(const char *) words;

void image_list_begin(struct image_list *l, const char *path, bool folder);
void image_list_add(struct image_list *l, const char *name, size_t n, int64_t class);
/* Turns labels of all pictures (NULL: none) into classes: into numbers if all of them are and `numbers` is set,
 * otherwise into names. */
int image_list_number(struct image_list *l, const char **label, bool numbers, struct err *e);
/* Turns labels into classes that l has from another list. 65 */
int image_list_find(struct image_list *l, const char **label, const char *classes_of, struct err *e);

int image_list_order(const void *a, const void *b);      /* compares strings, for qsort */

/* Does the name end with .tar? */
bool image_shards_named(const char *path, size_t n);
/* Archives by a pattern: braces with words, {a,b}, or numbers, {000..127}, and *, ? and [], as in a shell. */
int image_shards_pattern(struct image_list *l, bool labels, const char *classes_of, struct err *e);
/* Archives of a list. */
int image_shards_read(struct image_list *l, const words *shard, bool labels, const char *classes_of, struct err *e);

#endif
