/* Internals of picture data sets. ds_images.c reads the pictures of a list. Others, such as ds_cifar.c, make their own
 * lists; their kinds consist of the functions below. */
#ifndef DATA_IMAGES_INT_H
#define DATA_IMAGES_INT_H
#include "data/ds_int.h"
#include "data/image_list.h"

/* Fills in the list of a part; its path is given. labels: they are needed. Call image_list_free also after a
 * failure. */
typedef int images_lister(const struct conf *c, enum ds_part part, bool labels, struct image_list *l, struct err *e);
/* Like ds_kind.open. */
int images_open(const struct ds_kind *kind, images_lister *lister, const struct conf *c, enum ds_part part,
                const struct ds_want *want, struct ds **out, struct err *e);
uint64_t images_count(const struct ds *ds);
int images_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e);
void images_damage(const struct ds *ds, uint64_t index, int field, struct ds_damage *sum);
void images_name(const struct ds *ds, uint64_t sample, struct text *t);
void images_report(const struct ds *ds, const struct ds_sink *to);
int64_t images_class(const struct ds *ds, uint64_t sample);
void images_only(struct ds *ds, const uint64_t *sample, uint64_t n);
void images_close(struct ds *ds);
enum { IMAGES_KEPT = 32 << 20 };                         /* ds_kind.kept */

#endif
