/* For data set formats only. Pure functions of the configuration and of the model's inputs. */
#ifndef DATA_DS_INT_H
#define DATA_DS_INT_H
#include "data/ds.h"

#define DATASET(name) extern const struct ds_kind ds_##name;
#include "registry.inc"

/* The fields that the model takes from a format with one input (F32, U8, I32 or I64) and at most one target. The target
 * is a class, F32 or, if the format gives integers, a map of classes. 78 for any others. A class becomes one-hot if the
 * target is a vector. */
struct ds_pair {
    struct shape input, target;
    enum dtype target_type;
    bool has_target;
    int64_t classes, ignored;                            /* of the target, as in struct field */
    enum dtype input_type;
    int64_t range;                                       /* of an integer input, as in struct field */
};
/* The target has a class, 0 to classes - 1, at each point. */
bool ds_pair_has_map(const struct ds_pair *p);
int ds_pair_of(const struct conf *c, const struct ds_want *want, bool integers, struct ds_pair *p, struct err *e);
void ds_integer_write(enum dtype t, void *x, int64_t at, int64_t value);   /* x[at]; U8, I32, I64 */
/* The fields of these formats. */
enum { PAIR_INPUT, PAIR_TARGET };
void ds_pair_fields(struct ds *d, const struct ds_pair *p);

/* File names of a part; images is NULL if the part is not configured. 78 if images are named and labels are needed but
 * not named. */
struct ds_files { const char *images, *labels; uint64_t limit; };
int ds_files(const struct conf *c, enum ds_part part, const struct ds_pair *want, struct ds_files *f, struct err *e);
/* How many samples of the files are used: all, or the limit. 78 if there are fewer. */
int ds_count(const struct conf *c, enum ds_part part, const struct ds_files *f, uint64_t there, uint64_t *count,
             struct err *e);

/* Fields of a decoder's samples: tokens and labels (I64, T), positions (I32, T). ds_want_tokens: the tokens' field that
 * a network wants; NULL: 78, it is no decoder. ignored: the label that does not count; 0: none. */
enum { FIELD_TOKENS, FIELD_LABELS, FIELD_POSITIONS, TOKEN_FIELDS };
const struct field *ds_want_tokens(const struct conf *c, const struct ds_want *want, struct err *e);
void ds_token_fields(struct ds *d, const struct field *tokens, int64_t ignored);
/* Sets to->label_bytes from these n samples of `of`; sample NULL: the first n. */
void ds_label_bytes(struct ds *to, const struct ds *of, const uint64_t *sample, uint64_t n);

/* data.mean and data.std of each channel, as in torchvision's Normalize: (x - mean) / std in float. 78 if their number
 * does not fit or a deviation is not above 0 in float. set: at least one of the two is given; the other is then 0 or 1.
 * mean and std lie in the caller's arena. */
struct ds_norm { int64_t channels; float *mean, *std; bool set; };
int ds_norm(const struct conf *c, int64_t channels, struct arena *mem, struct ds_norm *n, struct err *e);
float ds_norm_level(const struct ds_norm *n, int64_t channel, float v);   /* the normalised value of a pixel 0 to 255 */
void ds_norm_levels(const struct ds_norm *n, float *level);   /* per channel, the normalised values of 0, 1 ... 255 */

/* The number of classes for labels. 65 with the label file's name and the target's shape if the target cannot hold a
 * class: it must be an I64 scalar or an F32 vector of one dimension. */
int ds_classes(const char *file, const struct ds_pair *want, int64_t *classes, struct err *e);

/* Writes a class as one I64, or as a one-hot vector of `classes` floats. */
void ds_class_write(const struct ds_pair *want, int64_t classes, int64_t label, void *y);

/* For ds_kind.tell: puts the size of the data at `at` in a file, and their first bytes. */
void ds_bytes_report(const struct ds_sink *to, int fd, const char *path, uint64_t at, uint64_t size);

/* 70 if there is no such sample, a caller's bug. */
int ds_index_check(const struct ds *d, uint64_t index, struct err *e);

#endif
