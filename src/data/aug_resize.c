#include "data/augment_int.h"

enum { SIZE };

static int resize_fit(struct aug *a, struct aug_size *s, struct err *e)
{
    aug_size_take(a, SIZE);
    *s = (struct aug_size){a->height, a->width, a->of[SIZE].n == 1};
    return 0;
}

/* The longer edge, rounded down as in torchvision's resize; capped at 2^30 pixels, which no picture has. */
static double longer(int side, int shorter, int size)
{
    double v = (double)((int64_t)size * side) / shorter;
    return v < 1 << 30 ? (double)(int64_t)v : 1 << 30;
}

static void resize_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    bool one = a->of[SIZE].n == 1;
    v[2] = height;
    v[3] = width;
    v[4] = one && height > width ? longer(height, width, a->height) : a->height;
    v[5] = one && width > height ? longer(width, height, a->width) : a->width;
}

static const struct aug_param param[] = {
    {"size", NULL, 1, 2, 1, 65500, true, .text = "height and width, or one number, the length of the shorter side, of "
     "which random_crop or center_crop then takes a part; the default is what the model takes"}, {0}};
const struct aug_kind aug_resize = {
    .name = "resize", .text = "the whole picture, scaled to that size", .stage = AUG_WHOLE, .pixels = true,
    .param = param, .fit = resize_fit, .draw = resize_draw,
};
