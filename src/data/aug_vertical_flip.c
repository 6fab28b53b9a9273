#include "data/augment_int.h"

static void vertical_flip_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    v[0] = variate_uniform(r) < a->of[0].v[0];
}

static void vertical_flip_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    if (v[0] != 0) canvas_flip(c, true, false);
}

static const struct aug_param param[] = {{"p", "0.5", 1, 1, 0, 1, .text = "probability"}, {0}};
const struct aug_kind aug_vertical_flip = {
    .name = "vertical_flip", .text = "flips top and bottom", .stage = AUG_PICTURE, .param = param,
    .draw = vertical_flip_draw, .apply = vertical_flip_apply,
};
