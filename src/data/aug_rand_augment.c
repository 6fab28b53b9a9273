#include "data/augment_int.h"
#include "data/augment_ops.h"

enum { OPS, MAGNITUDE, OPS_MOST = AUG_DRAWN / 2, BINS = 31 };

/* torchvision's RandAugment: several operations of equal magnitude. */
static void rand_augment_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    static const struct augment_op_range most = {0.3, 150.0 / 331.0, 30, 0.9, 4};
    int bin = (int)a->of[MAGNITUDE].v[0];
    for (int i = 0; i < (int)a->of[OPS].v[0]; i++) {
        enum policy p = (enum policy)variate_below(r, POLICIES);
        bool less = variate_below(r, 2) && p <= POLICY_SHARPNESS;
        v[2 * i] = p;
        v[2 * i + 1] = augment_op_magnitude(p, &most, p == POLICY_TRANSLATE_X ? width : height, bin, BINS) *
                       (less ? -1 : 1);
    }
}

static void rand_augment_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    for (int i = 0; i < (int)a->of[OPS].v[0]; i++) augment_op_apply((enum policy)v[2 * i], v[2 * i + 1], c);
}

static const struct aug_param param[] = {
    {"ops", "2", 1, 1, 0, OPS_MOST, true, .text = "number of changes in sequence"},
    {"magnitude", "9", 1, 1, 0, BINS - 1, true, .text = "strength of the changes"}, {0}};
const struct aug_kind aug_rand_augment = {
    .name = "rand_augment", .stage = AUG_PICTURE, .pixels = true,
    .text = "changes chosen at random from fourteen, all of one strength: torchvision's RandAugment",
    .param = param, .draw = rand_augment_draw, .apply = rand_augment_apply,
};
