/* data.augment: random changes of each training picture. For data set formats, and for code that shows or documents the
 * list. An augmentation is one file aug_NAME.c, its name in AUGMENTATIONS or, if it mixes two samples, in MIXES (see
 * augment_int.h).
 *
 * An entry of the list draws its random numbers only from (seed, epoch, sample, place in the list). So a sample has the
 * same bits with any number of readers, ranks and stages, with any batch size, and after a resume. Entries that mix two
 * samples also choose the second one by these numbers (mix.h). After augment_open nothing changes: any thread. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H
#include "data/canvas.h"
#include "data/ds.h"
#include "data/crop_geometry.h"

/* What the model takes, and the type of the format's pictures: pixels of 8 bits (1 or 3 channels), or floats. row: the
 * samples are not pictures. file: for texts. */
struct augment_want { const char *file; int64_t channels, height, width; bool pixels, row; };
struct augment_key { uint64_t sample, visit; };          /* visit: as in ds_kind.read, the epoch from 0 */

struct augment;
/* Reads the list and checks that it fits. Without entries, as for test samples, *out is NULL without error. 78 with the
 * place of data.augment. Release with augment_free. */
int augment_open(const struct conf *c, enum ds_part part, const struct augment_want *w, struct augment **out,
                 struct err *e);
void augment_free(struct augment *a);                    /* a may be NULL */
/* Does the configuration's list begin such that augment_whole will hold? */
bool augment_begins_whole(const struct conf *c);
/* Does the list begin with the whole picture? Otherwise it receives what an evaluation shows. */
bool augment_whole(const struct augment *a);
bool augment_pixels(const struct augment *a);            /* augment_want.pixels: are the pictures pixels? */
/* For a whole stored picture of this size: which part is scaled to which size (crop_geometry.h). */
struct crop_place augment_place(const struct augment *a, struct augment_key k, int width, int height,
                                struct picture_turn turn);
/* Makes a sample from a picture: entries on pictures, then normalisation (norm; level: from ds_norm_levels), then
 * entries on numbers. x has channels x height x width elements. scaled: augment_place has scaled the whole picture. a
 * NULL: no entries. Overwrites the canvas. */
struct ds_norm;
struct augment_values { const struct ds_norm *norm; const float *level; int64_t channels; bool scaled; };
void augment_values(const struct augment *a, struct augment_key k, const struct augment_values *w, struct canvas *c,
                    float *x);

/* mdoc source of the list's syntax. */
void augment_manual(struct text *out);

#endif
