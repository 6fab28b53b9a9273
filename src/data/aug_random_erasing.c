#include <math.h>
#include "data/augment_int.h"

enum { P, SCALE, RATIO, VALUE, NOISE };

/* Like torchvision's RandomErasing.get_params: up to ten draws of an area and a log ratio, until the rectangle fits;
 * then a place. v[2] 0: erase nothing. */
static void random_erasing_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    const double *scale = a->of[SCALE].v, *ratio = a->of[RATIO].v, all = (double)height * width;
    bool does = variate_uniform(r) < a->of[P].v[0];
    for (int i = 0; does && i < 10; i++) {
        double area = all * variate_between(r, scale[0], scale[1]);
        double shape = exp(variate_between(r, log(ratio[0]), log(ratio[1])));
        double h = rint(sqrt(area * shape)), w = rint(sqrt(area / shape));
        if (!(h >= 1 && w >= 1 && h < height && w < width)) continue;
        v[0] = (double)variate_below(r, (uint64_t)(height - h) + 1);
        v[1] = (double)variate_below(r, (uint64_t)(width - w) + 1);
        v[2] = h;
        v[3] = w;
        return;
    }
}

static void random_erasing_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    float *x = (float *)c->at, value = (float)a->of[VALUE].v[0];
    bool noise = a->of[NOISE].v[0] != 0;
    for (int k = 0; k < c->planes; k++, x += (size_t)c->height * (size_t)c->width)
        for (int i = (int)v[0]; i < (int)(v[0] + v[2]); i++)
            for (int j = (int)v[1]; j < (int)(v[1] + v[3]); j++)
                x[(size_t)i * (size_t)c->width + (size_t)j] = noise ? (float)variate_normal(r) : value;
}

static const struct aug_param param[] = {
    {"p", "0.5", 1, 1, 0, 1, .text = "probability"},
    {"scale", "0.02,0.33", 2, 2, 0, 1, false, true, "the rectangle's area, as a fraction of the picture's"},
    {"ratio", "0.3,3.3", 2, 2, 0.001, 1000, false, true, "its height by its width"},
    {"value", "0", 1, 1, -1e6, 1e6, .text = "fill value after normalisation, where 0 is the mean"},
    {"noise", "0", 1, 1, 0, 1, true, .text = "if 1, fill with standard normal numbers instead"}, {0}};
const struct aug_kind aug_random_erasing = {
    .name = "random_erasing", .text = "overwrites a random rectangle", .stage = AUG_NUMBERS, .param = param,
    .draw = random_erasing_draw, .apply = random_erasing_apply,
};
