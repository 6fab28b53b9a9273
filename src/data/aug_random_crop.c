#include "data/augment_int.h"

enum { SIZE, PADDING };

static int random_crop_fit(struct aug *a, struct aug_size *s, struct err *e)
{
    int more = 2 * (int)a->of[PADDING].v[0];
    aug_size_take(a, SIZE);
    if (a->height > s->height + more || a->width > s->width + more)
        return err_set(e, E_CONF, "%dx%d pixels cannot be cut out of %dx%d", a->height, a->width, s->height + more,
                       s->width + more);
    *s = (struct aug_size){a->height, a->width, false};
    return 0;
}

/* A random place in the padded picture, as in torchvision's RandomCrop. */
static void random_crop_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    double padding = a->of[PADDING].v[0];
    int64_t down = height - a->height + 2 * (int64_t)padding, across = width - a->width + 2 * (int64_t)padding;
    v[0] = (double)variate_below(r, (uint64_t)down + 1) - padding;
    v[1] = (double)variate_below(r, (uint64_t)across + 1) - padding;
}

static const struct aug_param param[] = {
    AUG_SIZE, {"padding", "0", 1, 1, 0, 4096, true, .text = "zero padding on each side before the crop"},
    {0}};
const struct aug_kind aug_random_crop = {
    .name = "random_crop", .text = "random crop of that size", .stage = AUG_PICTURE, .cuts = true,
    .param = param, .fit = random_crop_fit, .draw = random_crop_draw,
};
