#include <math.h>
#include "data/augment_int.h"

enum { SIZE, SCALE, RATIO };

static int random_resized_crop_fit(struct aug *a, struct aug_size *s, struct err *e)
{
    aug_size_take(a, SIZE);
    *s = (struct aug_size){a->height, a->width, false};
    return 0;
}

/* Fallback for pictures too wide or too high for any ratio: the largest central part with the nearest ratio. */
static void middle(const double *ratio, int height, int width, double *v)
{
    double has = (double)width / height;
    v[2] = has < ratio[0] ? fmax(rint(width / ratio[0]), 1) : height;
    v[3] = has > ratio[1] ? fmax(rint(height * ratio[1]), 1) : width;
    v[0] = floor((height - v[2]) / 2);
    v[1] = floor((width - v[3]) / 2);
}

/* Like torchvision's RandomResizedCrop.get_params: up to ten draws of an area and a log ratio, until the rectangle
 * fits, and then a place. */
static void random_resized_crop_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    const double *scale = a->of[SCALE].v, *ratio = a->of[RATIO].v, all = (double)height * width;
    v[4] = a->height;
    v[5] = a->width;
    for (int i = 0; i < 10; i++) {
        double area = all * variate_between(r, scale[0], scale[1]);
        double shape = exp(variate_between(r, log(ratio[0]), log(ratio[1])));
        double w = rint(sqrt(area * shape)), h = rint(sqrt(area / shape));
        if (!(w >= 1 && w <= width && h >= 1 && h <= height)) continue;
        v[0] = (double)variate_below(r, (uint64_t)(height - h) + 1);
        v[1] = (double)variate_below(r, (uint64_t)(width - w) + 1);
        v[2] = h;
        v[3] = w;
        return;
    }
    middle(ratio, height, width, v);
}

static const struct aug_param param[] = {
    AUG_SIZE,
    {"scale", "0.08,1", 2, 2, 0, 1, false, true, "the part's area, as a fraction of the picture's"},
    {"ratio", "0.75,1.3333333333333333", 2, 2, 0.001, 1000, false, true, "its width by its height"}, {0}};
const struct aug_kind aug_random_resized_crop = {
    .name = "random_resized_crop", .text = "random part of the whole picture, scaled to that size",
    .stage = AUG_WHOLE, .pixels = true, .param = param, .fit = random_resized_crop_fit,
    .draw = random_resized_crop_draw,
};
