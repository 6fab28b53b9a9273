/* Mixes two training samples: mixup and cutmix of data.augment. For ds.c.
 *
 * A sample is mixed with another one of its data set. (seed, epoch, sample) alone determine the other one and the
 * fractions. The other one is as in the same epoch by itself, after all earlier entries of the list. So nothing depends
 * on batches, but each mixed sample reads two pictures. At most one of several such entries is chosen, each with its
 * probability p. If these add up to more than 1, they are divided by the sum. */
#ifndef DATA_MIX_H
#define DATA_MIX_H
#include "data/ds.h"

struct mix;
/* *out NULL without error: no such entry, or test samples. 78 with the place of data.augment unless the data set has an
 * input and a target of floats. Release with mix_free. */
int mix_open(const struct conf *c, enum ds_part part, const struct ds *d, struct mix **out, struct err *e);
/* Like ds_kind.read. */
int mix_read(struct mix *m, struct ds *d, const struct ds_at *at, void *out, struct err *e);
/* Is this sample mixed, and with which one? */
bool mix_other(const struct mix *m, const struct ds_at *at, uint64_t *other);
void mix_free(struct mix *m);                            /* m may be NULL */

#endif
