#include "data/augment_int.h"

static void mixup_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    v[0] = variate_beta(r, a->of[MIX_ALPHA].v[0]);
}

static void mix(const double *v, struct canvas *c, const float *other)
{
    float *x = (float *)c->at;
    size_t n = (size_t)c->planes * (size_t)c->height * (size_t)c->width;
    for (size_t i = 0; i < n; i++) x[i] = (float)(v[0] * x[i] + (1 - v[0]) * other[i]);
}

static const struct aug_param param[] = {MIX_PARAMS("0.2"), {0}};
const struct aug_kind aug_mixup = {
    .name = "mixup", .text = "the values and labels of two samples are averaged", .stage = AUG_MIX, .any = true,
    .param = param, .draw = mixup_draw, .mix = mix,
};
