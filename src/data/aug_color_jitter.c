#include "data/augment_int.h"
#include "data/colours.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, FOUR };

/* Turns one number into a range of that distance around the middle, but no factor below 0. */
static int color_jitter_fit(struct aug *a, struct aug_size *s, struct err *e)
{
    for (int i = 0; i < FOUR; i++) {
        double *v = a->of[i].v, middle = i == HUE ? 0 : 1, far = v[0];
        if (a->of[i].n != 1) continue;
        if (far < 0) return err_set(e, E_CONF, "%s: %g is below 0", a->kind->param[i].name, far);
        v[0] = i != HUE && far > 1 ? 0 : middle - far;
        v[1] = middle + far;
        if (far == 0) a->of[i].n = 0;
    }
    return 0;
}

/* v[0..3]: their order; then the four factors, as in torchvision's ColorJitter. */
static void color_jitter_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    for (int i = 0; i < FOUR; i++) {
        int k = (int)variate_below(r, (uint64_t)i + 1);
        v[i] = v[k];
        v[k] = i;
    }
    for (int i = 0; i < FOUR; i++) v[FOUR + i] = variate_between(r, a->of[i].v[0], a->of[i].v[1]);
}

static void color_jitter_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    static void (*const change[])(struct canvas *c, double by) = {colours_brightness, colours_contrast,
                                                                  colours_saturation, colours_hue};
    for (int i = 0; i < FOUR; i++) {
        int k = (int)v[i];
        if (a->of[k].n) change[k](c, v[FOUR + k]);
    }
}

#define FACTOR "one number: a factor from 1 less that to 1 more; two: from the first to the second"
static const struct aug_param param[] = {
    {"brightness", "0", 1, 2, 0, 100, false, true, FACTOR}, {"contrast", "0", 1, 2, 0, 100, false, true, FACTOR},
    {"saturation", "0", 1, 2, 0, 100, false, true, FACTOR},
    {"hue", "0", 1, 2, -0.5, 0.5, false, true, "the same of a turn, around 0"}, {0}};
const struct aug_kind aug_color_jitter = {
    .name = "color_jitter", .text = "random brightness, contrast, saturation and hue, in random order",
    .stage = AUG_PICTURE, .pixels = true, .param = param, .fit = color_jitter_fit, .draw = color_jitter_draw,
    .apply = color_jitter_apply,
};
