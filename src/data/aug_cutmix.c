#include <math.h>
#include "data/augment_int.h"

static void span(struct draws *r, int size, double part, double *begin, double *end)
{
    double at = (double)variate_below(r, (uint64_t)size), half = floor(part * size);
    *begin = fmax(at - half, 0);
    *end = fmin(at + half, size);
}

/* Like torchvision's CutMix: a rectangle of the picture's shape with a random centre, clipped at the border. Labels are
 * weighted by the area that remains. */
static void cutmix_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    double part = 0.5 * sqrt(1 - variate_beta(r, a->of[MIX_ALPHA].v[0]));
    span(r, width, part, &v[3], &v[4]);
    span(r, height, part, &v[1], &v[2]);
    v[0] = 1 - (v[4] - v[3]) * (v[2] - v[1]) / ((double)width * height);
}

static void mix(const double *v, struct canvas *c, const float *other)
{
    float *x = (float *)c->at;
    size_t w = (size_t)c->width, from = (size_t)v[3], n = (size_t)v[4] - from;
    for (int k = 0; k < c->planes; k++)
        for (size_t y = (size_t)v[1]; y < (size_t)v[2]; y++) {
            size_t at = ((size_t)k * (size_t)c->height + y) * w + from;
            for (size_t i = at; i < at + n; i++) x[i] = other[i];
        }
}

static const struct aug_param param[] = {MIX_PARAMS("1"), {0}};
const struct aug_kind aug_cutmix = {
    .name = "cutmix", .text = "a rectangle comes from another sample, and the same share of the labels",
    .stage = AUG_MIX, .param = param, .draw = cutmix_draw, .mix = mix,
};
