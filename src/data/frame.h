/* Which part of a picture a sample shows: sizes, from a picture's own to those of the model's input. Pure. For data
 * sets.
 *
 * The upright picture is scaled, then padded with zeros, then cropped about its centre, each as torchvision's Resize,
 * Pad and CenterCrop do it: the longer side of a picture that is scaled by its shorter one is rounded down; of an odd
 * number of pixels padding has more on the right and below; half of an odd one is rounded to even where it is cropped.
 */
#ifndef DATA_FRAME_H
#define DATA_FRAME_H
#include "data/picture.h"
#include "data/resample.h"

/* resize[0] 0: the picture is scaled until it just covers height x width; resize[1] 0: until its shorter side is
 * resize[0]; otherwise to that height and width. pad: at least this height and width, 0: as it is. */
struct frame { int height, width; int64_t resize[2], pad[2]; };

/* Where a picture's pixels go: window is the part of the scaled picture, as stored, that a sample shows. In the sample
 * it begins at row `top` and column `left` and has, upright, rows x columns pixels; around it is padding. */
struct frame_place { struct resample_want window; int top, left, rows, columns; struct picture_turn turn; };
struct frame_place frame_place(const struct frame *f, int width, int height, struct picture_turn turn);

#endif
