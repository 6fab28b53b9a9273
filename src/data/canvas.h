/* A picture in memory, on which the entries of data.augment work. For data sets. It owns its memory and reuses it for
 * the next picture: begin with {0}, end with canvas_free. One thread.
 *
 * It is either one plane of 8-bit pixels, four bytes each: red, green, blue and an unused one; grey pictures have equal
 * colours. Or it has floats, one plane per channel, not yet normalised, so 0 is black here, too. Code that only moves
 * elements is therefore the same for both: elements have four bytes, and elements from outside are 0. */
#ifndef DATA_CANVAS_H
#define DATA_CANVAS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "data/resample.h"

struct canvas {
    bool pixels;
    int planes, height, width;
    uint32_t *at;                                        /* planes x height x width elements */
    uint32_t *memory[2];                                 /* at is the first; changes write into the other */
    size_t space[2];                                      /* in elements */
    struct resample scaler;
};
struct canvas_part { int top, left, height, width; };
/* Sets the size; the contents are lost. */
void canvas_begin(struct canvas *c, bool pixels, int planes, int height, int width);
/* The same before a change: returns the old contents, which stay valid until the next call. */
const uint32_t *canvas_change(struct canvas *c, int height, int width);
size_t canvas_bytes(const struct canvas *c);             /* bytes of allocated memory */
void canvas_free(struct canvas *c);

/* A pool of unused canvases. Any thread, except for begin and end. */
struct canvas_kept;
struct canvas_pool { pthread_mutex_t lock; struct canvas_kept *first; };
void canvas_pool_begin(struct canvas_pool *p);
struct canvas *canvas_take(struct canvas_pool *p);
void canvas_give(struct canvas_pool *p, struct canvas *c);
void canvas_pool_end(struct canvas_pool *p);             /* after all canvases were given back */

/* Crops to the part whose first row and column are top and left; elements outside become 0. */
void canvas_crop(struct canvas *c, int top, int left, int height, int width);
void canvas_flip(struct canvas *c, bool rows, bool columns);
/* Element (row y, column x) becomes the one at column m[0] x + m[1] y + m[2], row m[3] x + m[4] y + m[5], or 0 outside.
 * Positions are those of centres. This is Pillow's Image.transform(AFFINE, NEAREST), whose positions are multiples of
 * 2^-16. */
void canvas_move(struct canvas *c, const double m[6]);

#endif
