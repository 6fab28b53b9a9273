/* Scaling images: bilinear between pixel centres; where an image shrinks, a triangle as wide as two pixels of the
 * result, so that no pixel is passed over. In floats that is torch.nn.functional.interpolate(mode="bilinear",
 * antialias=True, align_corners=False). Pictures of 8 bits are scaled to the bit as Image.resize(BILINEAR) of
 * Pillow 13 does, on every machine: in whole numbers, along rows and along columns, rounded to 8 bits after each. The
 * order decides the last bit: along rows first, unless the height shrinks by more than twice what the width does
 * (Pillow 12 and older: always). For data sets. */
#ifndef DATA_RESAMPLE_H
#define DATA_RESAMPLE_H
#include <stdbool.h>
#include <stdint.h>
#include "data/picture.h"

/* Along one axis of `from` elements, one of the `to` elements of the result is a weighted sum of n elements from first
 * on. taps_of writes the weights, of which there are up to taps_most. */
struct taps { int64_t first, n; };
int64_t taps_most(int64_t from, int64_t to);
struct taps taps_of(int64_t from, int64_t to, int64_t i, double *weight);

/* A window of a scaled picture of four bytes a pixel, made row by row. It owns memory, which it keeps for the next
 * picture: begin with {0}, end with resample_free. One thread. */
struct resample_want {
    int width, height;                                   /* of the picture */
    int64_t to_width, to_height;                         /* scaled */
    int64_t left, top;                                   /* of the window in the scaled picture, inside of it */
    int n_columns, n_rows;
    bool down_first;                                     /* along the columns, then along the rows */
    bool mirror_columns, mirror_rows;                    /* with the weights of the mirrored picture */
};
struct resample_axis { struct taps *taps; int32_t *weight; int64_t most; };
struct resample {
    struct resample_want want;
    struct resample_axis columns, rows;
    int n_in, n_out;                                     /* rows: of the picture behind us, of the window done */
    uint8_t *line, *between, *window;                    /* line: the last rows, in turn, scaled once or as they are */
    size_t line_bytes;                                   /* of a line, and of between, a row that is scaled once */
    bool wide;                                           /* by AVX2, which resample_begin chooses: the same bytes */
    struct resample_groups { int n; int32_t *first; int16_t *weight; } groups;   /* then, of the columns: resample.c */
    int32_t *pairs;                                      /* and of the row that is made */
    void *memory;
    size_t bytes;                                        /* of memory */
};
void resample_begin(struct resample *r, const struct resample_want *w);
struct picture_part resample_part(const struct resample *r);   /* of the picture, what the window needs */
/* The next row of that part, but all of the row's columns have their places. */
void resample_row(struct resample *r, const uint8_t *row);
/* n_columns pixels of a row of the window, once it has taken all rows that it needs. */
const uint8_t *resample_window(const struct resample *r, int row);
void resample_free(struct resample *r);

#endif
