#include "data/augment_int.h"

static void horizontal_flip_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    v[0] = variate_uniform(r) < a->of[0].v[0];
}

static void horizontal_flip_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    if (v[0] != 0) canvas_flip(c, false, true);
}

static const struct aug_param param[] = {{"p", "0.5", 1, 1, 0, 1, .text = "probability"}, {0}};
const struct aug_kind aug_horizontal_flip = {
    .name = "horizontal_flip", .text = "flips left and right", .stage = AUG_PICTURE, .param = param,
    .draw = horizontal_flip_draw, .apply = horizontal_flip_apply,
};
