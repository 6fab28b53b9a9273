/* The operations that trivial_augment and rand_augment choose from: those of torchvision's TrivialAugmentWide and
 * RandAugment on Pillow's pictures, with nearest-neighbour sampling and 0 outside. The canvas has pixels. */
#ifndef DATA_AUGMENT_OPS_H
#define DATA_AUGMENT_OPS_H
#include "data/canvas.h"

/* Meaning of magnitude. Shears: shift of a row or column per pixel. Translations: pixels, truncated. Rotation: degrees,
 * counterclockwise. The next four: added to the factor 1. Posterize: bits to keep. Solarize: first inverted value.
 * Others: unused. The first ten, except the identity, have a sign. */
enum policy { POLICY_IDENTITY, POLICY_SHEAR_X, POLICY_SHEAR_Y, POLICY_TRANSLATE_X, POLICY_TRANSLATE_Y, POLICY_ROTATE,
              POLICY_BRIGHTNESS, POLICY_COLOR, POLICY_CONTRAST, POLICY_SHARPNESS, POLICY_POSTERIZE, POLICY_SOLARIZE,
              POLICY_AUTOCONTRAST, POLICY_EQUALIZE, POLICIES };
void augment_op_apply(enum policy p, double magnitude, struct canvas *c);

/* Magnitude of step `bin` of `bins`, from 0 on; most: of the last step. For posterize, most is the number of bits lost.
 * side: the length of which a translation's most is a fraction; 0: most is pixels. */
struct augment_op_range { double shear, translate, rotate, factor, bits; };
double augment_op_magnitude(enum policy p, const struct augment_op_range *most, int side, int bin, int bins);

#endif
