/* Image scaling: bilinear between pixel centres. When an image shrinks, a triangle two result pixels wide, so that
 * every pixel contributes. In floats this is torch.nn.functional.interpolate(mode="bilinear", antialias=True,
 * align_corners=False). Pictures of 8 bits are scaled to the bit as by Image.resize(BILINEAR) of Pillow 13, on every
 * machine: in integers, along rows and along columns, rounded to 8 bits after each. The order decides the last bit:
 * along rows first, unless the height shrinks by more than twice as much as the width (Pillow 12 and older: always).
 * For data sets. */
#ifndef DATA_RESAMPLE_H
#define DATA_RESAMPLE_H
#include <stdbool.h>
#include <stdint.h>
#include "data/picture.h"

/* One axis, scaled from `from` to `to` elements: element i of the result is a weighted sum of n elements from first on.
 * taps_of writes the weights, at most taps_most. */
struct taps { int64_t first, n; };
int64_t taps_most(int64_t from, int64_t to);
struct taps taps_of(int64_t from, int64_t to, int64_t i, double *weight);

/* A window of a scaled picture of four bytes a pixel, made row by row. It owns its memory and reuses it for the next
 * picture: begin with {0}, end with resample_free. One thread. */
struct resample_want {
    int width, height;                                   /* of the picture */
    int64_t to_width, to_height;                         /* the scaled size */
    int64_t left, top;                                   /* of the window, which lies inside the scaled picture */
    int n_columns, n_rows;
    bool down_first;                                     /* along the columns, then along the rows */
    bool mirror_columns, mirror_rows;                    /* with the weights of the mirrored picture */
};
struct resample_axis { struct taps *taps; int32_t *weight; int64_t most; };
struct resample {
    struct resample_want want;
    struct resample_axis columns, rows;
    int n_in, n_out;                                     /* rows: of the picture read, of the window done */
    uint8_t *line, *between, *window;                    /* line: the last rows in a ring, scaled once or unscaled */
    size_t line_bytes;                                   /* of a line and of between, a row scaled once */
    bool wide;                                           /* uses AVX2, chosen by resample_begin: the same bytes */
    struct resample_groups { int n; int32_t *first; int16_t *weight; } groups;   /* AVX2: for columns: resample.c */
    int32_t *pairs;                                      /* for the current row */
    void *memory;
    size_t bytes;                                        /* of memory */
};
void resample_begin(struct resample *r, const struct resample_want *w);
struct picture_part resample_part(const struct resample *r);   /* the part of the picture that the window needs */
/* The next row of that part; `row` begins at the picture's first column. */
void resample_row(struct resample *r, const uint8_t *row);
/* n_columns pixels of a row of the window, after all rows that it needs. */
const uint8_t *resample_window(const struct resample *r, int row);
void resample_free(struct resample *r);

#endif
