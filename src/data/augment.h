/* data.augment: what training makes of each picture, at random. For data set formats, and for who shows or documents
 * the list. An augmentation is one file aug_NAME.c, its name in AUGMENTATIONS or, where it mixes two samples, in MIXES
 * (augment_int.h says what it is).
 *
 * An entry of the list draws its random numbers from (seed, epoch, sample, place in the list) alone: so a sample has
 * the same bits with any number of readers, ranks and stages, in batches of any size, and after a resumption. Entries
 * that mix two samples get the second one by these numbers, too; mix.h has them. After augment_open nothing changes:
 * any thread. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H
#include "data/canvas.h"
#include "data/ds.h"
#include "data/crop_geometry.h"

/* What the model takes, and what the format's pictures are: pixels of 8 bits (of 1 or 3 channels), or floats. row: they
 * are no pictures at all. file: for texts. */
struct augment_want { const char *file; int64_t channels, height, width; bool pixels, row; };
struct augment_key { uint64_t sample, visit; };          /* visit: as ds_kind.read has it, the epoch from 0 */

struct augment;
/* Reads the list and checks that it fits. *out is NULL without error where there is none, as for test samples. 78 with
 * the place of data.augment. augment_free it. */
int augment_open(const struct conf *c, enum ds_part part, const struct augment_want *w, struct augment **out,
                 struct err *e);
void augment_free(struct augment *a);                    /* a may be NULL */
/* Does the list of the configuration begin so that augment_whole will hold? */
bool augment_begins_whole(const struct conf *c);
/* Does the list begin with the whole picture? Otherwise it is given what an evaluation shows. */
bool augment_whole(const struct augment *a);
bool augment_pixels(const struct augment *a);            /* as it was wanted: are the pictures pixels? */
/* Of a whole picture of this size, as stored: which part of it is scaled to which size (crop_geometry.h). */
struct crop_place augment_place(const struct augment *a, struct augment_key k, int width, int height,
                                struct picture_turn turn);
/* Makes a sample of a picture: all entries on pictures, then normalisation (norm; level: ds_norm_levels of it), then
 * the entries on numbers; x has channels x height x width. scaled: the whole picture is scaled already, by
 * augment_place. a NULL: no entries. The canvas is used up. */
struct ds_norm;
struct augment_values { const struct ds_norm *norm; const float *level; int64_t channels; bool scaled; };
void augment_values(const struct augment *a, struct augment_key k, const struct augment_values *w, struct canvas *c,
                    float *x);

/* mdoc source of what the list may hold. */
void augment_manual(struct text *out);

#endif
