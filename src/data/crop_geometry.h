/* Which part of a picture a sample shows: sizes, from a picture's own to those of the model's input. Pure. For data
 * sets.
 *
 * The upright picture is scaled, then padded with zeros, then cropped about its centre, each as torchvision's Resize,
 * Pad and CenterCrop do it: the longer side of a picture that is scaled by its shorter one is rounded down; of an odd
 * number of pixels padding has more on the right and below; half of an odd one is rounded to even where it is cropped.
 */
#ifndef DATA_CROP_GEOMETRY_H
#define DATA_CROP_GEOMETRY_H
#include "data/canvas.h"
#include "data/picture.h"

/* resize[0] 0: the picture is scaled until it just covers height x width; resize[1] 0: until its shorter side is
 * resize[0]; otherwise to that height and width. pad: at least this height and width, 0: as it is. */
struct crop_frame { int height, width; int64_t resize[2], pad[2]; };

/* Where a picture's pixels go. Of the stored picture the part of window.height rows and window.width columns from
 * from_top and from_left on is scaled; window is the part of the scaled one, as stored, that a sample shows. In the
 * sample, which has height x width pixels, it begins at row `top` and column `left` and has, upright, rows x columns
 * pixels; around it is padding. */
struct crop_place {
    struct resample_want window;
    int from_top, from_left, height, width, top, left, rows, columns;
    struct picture_turn turn;
};
/* Where `size` pixels begin that are cropped about the centre of `scaled` ones, which have been padded to at least
 * `pad`: counted from the first of the scaled ones, so below 0 in the padding. */
int64_t crop_centred(int64_t scaled, int64_t pad, int size);
struct crop_place crop_place(const struct crop_frame *f, int width, int height, struct picture_turn turn);
/* The same for any part of the upright picture, scaled to to_height x to_width; the sample shows height x width pixels
 * of that from row `top` and column `left` on, which may lie outside. width and height are the stored picture's. */
struct crop_cut { struct canvas_part part; int64_t to_height, to_width, top, left; int height, width; };
struct crop_place crop_cut_place(const struct crop_cut *cut, int width, int height, struct picture_turn turn);
/* In which order the axes of its window are scaled: of the upright picture as Pillow does (resample.h). */
void crop_order(struct crop_place *p);
/* What the scaler holds, upright and with its padding, as a picture in memory. */
void crop_show(const struct crop_place *p, const struct resample *r, struct canvas *c);
/* Makes it of a picture in memory, which is as stored. */
void crop_scale(const struct crop_place *p, struct canvas *c);

#endif
