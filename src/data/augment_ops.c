#include <math.h>
#include "data/colours.h"
#include "data/augment_ops.h"

static void shear(struct canvas *c, double x, double y) { canvas_move(c, (const double[6]){1, x, 0, y, 1, 0}); }
static void translate(struct canvas *c, double x, double y)
{
    canvas_move(c, (const double[6]){1, 0, -trunc(x), 0, 1, -trunc(y)});
}

/* Rotates about the middle. Sine and cosine have 15 decimals, as in Pillow's Image.rotate. */
static void rotate(struct canvas *c, double degrees)
{
    double angle = -fmod(fmod(degrees, 360) + 360, 360) * (3.14159265358979323846 / 180);
    double cosine = rint(cos(angle) * 1e15) / 1e15, sine = rint(sin(angle) * 1e15) / 1e15;
    double x = c->width / 2.0, y = c->height / 2.0;
    canvas_move(c, (const double[6]){cosine, sine, -x * cosine - y * sine + x, -sine, cosine,
                                     x * sine - y * cosine + y});
}

void augment_op_apply(enum policy p, double magnitude, struct canvas *c)
{
    switch (p) {
    case POLICY_SHEAR_X: shear(c, magnitude, 0); break;
    case POLICY_SHEAR_Y: shear(c, 0, magnitude); break;
    case POLICY_TRANSLATE_X: translate(c, magnitude, 0); break;
    case POLICY_TRANSLATE_Y: translate(c, 0, magnitude); break;
    case POLICY_ROTATE: rotate(c, magnitude); break;
    case POLICY_BRIGHTNESS: colours_brightness(c, 1 + magnitude); break;
    case POLICY_COLOR: colours_saturation(c, 1 + magnitude); break;
    case POLICY_CONTRAST: colours_contrast(c, 1 + magnitude); break;
    case POLICY_SHARPNESS: colours_sharpness(c, 1 + magnitude); break;
    case POLICY_POSTERIZE: colours_posterize(c, (int)magnitude); break;
    case POLICY_SOLARIZE: colours_solarize(c, magnitude); break;
    case POLICY_AUTOCONTRAST: colours_autocontrast(c); break;
    case POLICY_EQUALIZE: colours_equalize(c); break;
    case POLICY_IDENTITY: case POLICIES: break;
    }
}

double augment_op_magnitude(enum policy p, const struct augment_op_range *most, int side, int bin, int bins)
{
    double part = (double)bin / (bins - 1);
    switch (p) {
    case POLICY_SHEAR_X: case POLICY_SHEAR_Y: return most->shear * part;
    case POLICY_TRANSLATE_X: case POLICY_TRANSLATE_Y: return most->translate * (side ? side : 1) * part;
    case POLICY_ROTATE: return most->rotate * part;
    case POLICY_BRIGHTNESS: case POLICY_COLOR: case POLICY_CONTRAST: case POLICY_SHARPNESS: return most->factor * part;
    case POLICY_POSTERIZE: return 8 - rint(most->bits * part);
    case POLICY_SOLARIZE: return 255 * (1 - part);
    default: return 0;
    }
}
