/* Shared by the tests of the data formats: a configuration around a section of data, opening one part of a source,
 * reading a sample. */
#ifndef TESTS_DATA_RIG_H
#define TESTS_DATA_RIG_H
#include "data/ds_int.h"
#include "files.h"

/* Returns a configuration with this text as section data. The caller calls conf_free(). */
struct conf *conf_make(const char *data);
/* Opens the training part by the format alone: the caller gives the fields, rather than a graph. The caller calls
 * ds_close(). */
struct ds *open_good(const char *data, struct ds_pair want);
void open_bad(const char *data, struct ds_pair want, int code, const char *part);
/* The same for any part; NULL with the error in e if it fails. */
struct ds *open_part(const char *data, enum ds_part part, struct ds_pair want, struct err *e);
/* Reads sample i; x or y may be NULL. */
void get(struct ds *d, uint64_t i, float *x, void *y);

#endif
