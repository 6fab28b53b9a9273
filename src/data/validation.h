/* data.validation: reserves a fraction of the training samples for testing. Only data sets use it. */
#ifndef DATA_VALIDATION_H
#define DATA_VALIDATION_H
#include "data/ds.h"

/* Opens the samples of data.train that belong to `part`. DS_TEST gets about the fraction data.validation of each class,
 * drawn by run.seed, DS_TRAIN the others, both in file order. No class is reserved completely. Like kind->open, and 78
 * if nothing would be reserved. */
int validation_open(const struct ds_kind *kind, const struct conf *c, enum ds_part part, const struct ds_want *want,
                    struct ds **out, struct err *e);
/* The rule alone: sets kept[i] for n samples of these classes. Pure. */
void validation_choose(const int64_t *class, uint64_t n, double share, uint64_t seed, bool *kept);

#endif
