/* Shared by the data set formats; nobody else includes it. Pure functions over what the configuration and the model
 * want. */
#ifndef DATA_DS_INT_H
#define DATA_DS_INT_H
#include "data/ds.h"

#define DATASET(name) extern const struct ds_kind ds_##name;
#include "registry.inc"

/* Formats of one input, of F32 or (integers) of U8, I32 or I64, and at most one target, a class or of F32, take this
 * from what the model wants; 78 if that is something else. A class becomes one-hot where the target is a vector. */
struct ds_pair {
    struct shape input, target;
    enum dtype target_type;
    bool has_target;
    int64_t classes;
    enum dtype input_type;
    int64_t range;                                       /* of an integer input, as in struct field */
};
int ds_pair_of(const struct conf *c, const struct ds_want *want, bool integers, struct ds_pair *p, struct err *e);
void ds_integer_write(enum dtype t, void *x, int64_t at, int64_t value);   /* x[at]; U8, I32, I64 */
/* Their fields, in this order: "input", "labels". */
enum { PAIR_INPUT, PAIR_TARGET };
void ds_pair_fields(struct ds *d, const struct ds_pair *p);

/* File names of a part; images is NULL if the part is not configured. 78 if images are named and labels are wanted but
 * not named. */
struct ds_files { const char *images, *labels; uint64_t limit; };
int ds_files(const struct conf *c, enum ds_part part, const struct ds_pair *want, struct ds_files *f, struct err *e);
/* How many of the samples that the files have are taken: all, or as many as the limit says. 78 if they have fewer. */
int ds_count(const struct conf *c, enum ds_part part, const struct ds_files *f, uint64_t there, uint64_t *count,
             struct err *e);

/* data.mean and data.std for each of a number of channels, as torchvision's Normalize: (x - mean) / std in float. 78 if
 * their number does not fit or a deviation is not above 0 in float. set is false when neither is given; a missing one
 * is 0 or 1. mean and std lie in the caller's arena. */
struct ds_norm { int64_t channels; float *mean, *std; bool set; };
int ds_norm(const struct conf *c, int64_t channels, struct arena *mem, struct ds_norm *n, struct err *e);

/* How many classes a class label may name, and that the target can hold one: I64 scalar or F32 vector of one dimension.
 * Otherwise 65 with the label file's name and the target's shape. */
int ds_classes(const char *file, const struct ds_pair *want, int64_t *classes, struct err *e);

/* Writes a class as the target has it: one I64, or a one-hot vector of `classes` floats. */
void ds_class_write(const struct ds_pair *want, int64_t classes, int64_t label, void *y);

/* 70 if there is no such sample: a bug of the caller. */
int ds_index_check(const struct ds *d, uint64_t index, struct err *e);

#endif
