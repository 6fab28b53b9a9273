/* What the tests of the data formats share: a configuration around a section of data, opening one part of a source,
 * reading a sample. */
#ifndef TESTS_DATA_RIG_H
#define TESTS_DATA_RIG_H
#include "data/ds_int.h"
#include "files.h"

/* A configuration whose section data is this text. conf_free() it. */
struct conf *conf_make(const char *data);
/* The training part, opened by the format alone: what is wanted is given, not taken from a graph. ds_close() it. */
struct ds *open_good(const char *data, struct ds_pair want);
void open_bad(const char *data, struct ds_pair want, int code, const char *part);
/* The same for any part; NULL with the error in e if it fails. */
struct ds *open_part(const char *data, enum ds_part part, struct ds_pair want, struct err *e);
/* Sample i; x or y may be NULL. */
void get(struct ds *d, uint64_t i, float *x, void *y);

#endif
