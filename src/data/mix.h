/* What training makes of two samples: mixup and cutmix of data.augment. For ds.c.
 *
 * A sample is mixed with another one of its data set, which is drawn for it, as are the parts, from (seed, epoch,
 * sample) alone; the other one is as it would be in the same epoch by itself, with all entries of the list that come
 * before. So nothing depends on batches, but two pictures are read for each sample that is mixed. Of several such
 * entries one is taken, with the probability p of each; where these add up to more than 1, they are divided by that. */
#ifndef DATA_MIX_H
#define DATA_MIX_H
#include "data/ds.h"

struct mix;
/* *out NULL without error: the list has no such entry, or it is for test samples. 78 with the place of data.augment if
 * the data set has no input and target of floats. mix_free it. */
int mix_open(const struct conf *c, enum ds_part part, const struct ds *d, struct mix **out, struct err *e);
/* As ds_kind.read. */
int mix_read(struct mix *m, struct ds *d, const struct ds_at *at, void *out, struct err *e);
/* Is this sample mixed, and with which one? */
bool mix_other(const struct mix *m, const struct ds_at *at, uint64_t *other);
void mix_free(struct mix *m);                            /* m may be NULL */

#endif
