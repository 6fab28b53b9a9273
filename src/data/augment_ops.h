/* The changes of which trivial_augment and rand_augment choose: those of torchvision's TrivialAugmentWide and
 * RandAugment, on Pillow's pictures, with places by nearest neighbour and 0 from outside. The canvas has pixels. */
#ifndef DATA_AUGMENT_OPS_H
#define DATA_AUGMENT_OPS_H
#include "data/canvas.h"

/* magnitude: of shears what a row or column moves per pixel; of translations pixels, cut off; of the rotation degrees,
 * counterclockwise; of the next four what is added to the factor 1; the bits that posterize keeps; where solarize
 * begins; of the others nothing. The first ten, the identity aside, have a sign. */
enum policy { POLICY_IDENTITY, POLICY_SHEAR_X, POLICY_SHEAR_Y, POLICY_TRANSLATE_X, POLICY_TRANSLATE_Y, POLICY_ROTATE,
              POLICY_BRIGHTNESS, POLICY_COLOR, POLICY_CONTRAST, POLICY_SHARPNESS, POLICY_POSTERIZE, POLICY_SOLARIZE,
              POLICY_AUTOCONTRAST, POLICY_EQUALIZE, POLICIES };
void augment_op_apply(enum policy p, double magnitude, struct canvas *c);

/* Magnitudes of `bins` steps, from 0 on: most[p] is that of the last one. Of posterize, the bits that are lost then.
 * side: what a translation's most is a part of; 0: most is pixels. */
struct augment_op_range { double shear, translate, rotate, factor, bits; };
double augment_op_magnitude(enum policy p, const struct augment_op_range *most, int side, int bin, int bins);

#endif
