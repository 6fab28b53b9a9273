/* A picture in memory, on which the entries of data.augment work. For data sets. It owns its memory, which it keeps for
 * the next picture: begin with {0}, end with canvas_free. One thread.
 *
 * It is either one plane of pixels of 8 bits, four bytes each: red, green, blue and one that means nothing; of a grey
 * picture all are alike. Or it is floats, a plane for each channel, not yet normalised: then 0 is black, too. So what
 * only moves things is the same for both: elements of four bytes, and what comes from outside is 0. */
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
    uint32_t *memory[2];                                 /* at is the first; what is made of it comes into the other */
    size_t room[2];                                      /* in elements */
    struct resample scaler;
};
struct canvas_part { int top, left, height, width; };
/* Gives it a size; what it shows is lost. */
void canvas_begin(struct canvas *c, bool pixels, int planes, int height, int width);
/* The same, by what it shows: returns that, which stays until the next call. */
const uint32_t *canvas_change(struct canvas *c, int height, int width);
size_t canvas_bytes(const struct canvas *c);             /* that it keeps */
void canvas_free(struct canvas *c);

/* Canvases that nobody uses, for whoever needs one next. Any thread, but to begin and to end. */
struct canvas_kept;
struct canvas_pool { pthread_mutex_t lock; struct canvas_kept *first; };
void canvas_pool_begin(struct canvas_pool *p);
struct canvas *canvas_take(struct canvas_pool *p);
void canvas_give(struct canvas_pool *p, struct canvas *c);
void canvas_pool_end(struct canvas_pool *p);             /* all have been given back */

/* Shows the part whose first row and column are top and left; what lies outside becomes 0. */
void canvas_crop(struct canvas *c, int top, int left, int height, int width);
void canvas_flip(struct canvas *c, bool rows, bool columns);
/* Element (row y, column x) becomes that at column m[0] x + m[1] y + m[2] and row m[3] x + m[4] y + m[5], where centres
 * count, or 0 outside: Pillow's Image.transform(AFFINE, NEAREST), whose places are whole numbers of 2^-16. */
void canvas_move(struct canvas *c, const double m[6]);

#endif
