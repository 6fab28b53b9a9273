/* Which part of a picture a sample shows: from the picture's size to the model's input size. Pure. For data sets.
 *
 * The upright picture is scaled, then padded with zeros, then cropped about its centre, as by torchvision's Resize, Pad
 * and CenterCrop. If the picture is scaled by its shorter edge, the longer one is rounded down. Padding by an odd
 * number of pixels puts more on the right and below. Cropping rounds half of an odd number to even. */
#ifndef DATA_CROP_GEOMETRY_H
#define DATA_CROP_GEOMETRY_H
#include "data/canvas.h"
#include "data/picture.h"

/* resize[0] 0: scale until the picture just covers height x width. resize[1] 0: scale until the shorter edge is
 * resize[0]; otherwise to that height and width. pad: minimum height and width, 0: no padding. */
struct crop_frame { int height, width; int64_t resize[2], pad[2]; };

/* Where a picture's pixels go. A part of the stored picture, window.height rows and window.width columns from from_top
 * and from_left on, is scaled. window is the part of the scaled picture, in stored orientation, that a sample shows. In
 * the sample of height x width pixels, it begins at row `top` and column `left`. Upright it has rows x columns pixels;
 * padding surrounds it. */
struct crop_place {
    struct resample_want window;
    int from_top, from_left, height, width, top, left, rows, columns;
    struct picture_turn turn;
};
/* The first of `size` pixels cropped about the centre of `scaled` ones, which were padded to at least `pad`. It counts
 * from the first scaled pixel, so it is below 0 in the padding. */
int64_t crop_centred(int64_t scaled, int64_t pad, int size);
struct crop_place crop_place(const struct crop_frame *f, int width, int height, struct picture_turn turn);
/* The same for any part of the upright picture, scaled to to_height x to_width. The sample shows height x width pixels
 * of it, from row `top` and column `left` on, which may lie outside. width and height are the stored picture's. */
struct crop_cut { struct canvas_part part; int64_t to_height, to_width, top, left; int height, width; };
struct crop_place crop_cut_place(const struct crop_cut *cut, int width, int height, struct picture_turn turn);
/* Sets the order in which the window's axes are scaled: for the upright picture as Pillow does (resample.h). */
void crop_order(struct crop_place *p);
/* Copies the scaler's result, upright and with its padding, to a picture in memory. */
void crop_show(const struct crop_place *p, const struct resample *r, struct canvas *c);
/* Scales a picture in memory, which has the stored orientation. */
void crop_scale(const struct crop_place *p, struct canvas *c);

#endif
