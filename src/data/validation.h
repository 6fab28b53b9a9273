/* data.validation: a part of the training samples is kept to test with, the rest is trained. Only data sets use it. */
#ifndef DATA_VALIDATION_H
#define DATA_VALIDATION_H
#include "data/ds.h"

/* Opens the part of the samples of data.train that `part` is: DS_TEST gets about the share data.validation of
 * each class, drawn by run.seed, DS_TRAIN the others, both in the order of the files. All of a class is never kept. As
 * kind->open, and 78 where nothing would be kept. */
int validation_open(const struct ds_kind *kind, const struct conf *c, enum ds_part part, const struct ds_want *want,
                    struct ds **out, struct err *e);
/* The rule alone: kept[i] for n samples of these classes. Pure. */
void validation_choose(const int64_t *class, uint64_t n, double share, uint64_t seed, bool *kept);

#endif
