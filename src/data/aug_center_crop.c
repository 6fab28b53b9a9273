#include "data/augment_int.h"

enum { SIZE };

static int center_crop_fit(struct aug *a, struct aug_size *s, struct err *e)
{
    aug_size_take(a, SIZE);
    *s = (struct aug_size){a->height, a->width, false};
    return 0;
}

/* Half, with halves of odd numbers rounded to even; padding by an odd number puts more on the right and below:
 * torchvision's center_crop. */
static int first(int has, int wants)
{
    int more = has - wants;
    return more < 0 ? -(-more / 2) : more / 2 + (more % 2 && more / 2 % 2);
}

static void center_crop_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    v[0] = first(height, a->height);
    v[1] = first(width, a->width);
}

static const struct aug_param param[] = {AUG_SIZE, {0}};
const struct aug_kind aug_center_crop = {
    .name = "center_crop", .text = "centre crop of that size; zero padding where it is larger",
    .stage = AUG_PICTURE, .cuts = true, .param = param, .fit = center_crop_fit, .draw = center_crop_draw,
};
