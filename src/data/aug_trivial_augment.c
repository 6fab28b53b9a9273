#include "data/augment_int.h"
#include "data/augment_ops.h"

/* torchvision's TrivialAugmentWide: one random operation of random magnitude. */
static void trivial_augment_draw(const struct aug *a, struct draws *r, int height, int width, double *v)
{
    enum { BINS = 31 };
    static const struct augment_op_range most = {0.99, 32, 135, 0.99, 6};
    enum policy p = (enum policy)variate_below(r, POLICIES);
    int bin = (int)variate_below(r, BINS);
    bool less = variate_below(r, 2) && p <= POLICY_SHARPNESS;
    v[0] = p;
    v[1] = augment_op_magnitude(p, &most, 0, bin, BINS) * (less ? -1 : 1);
}

static void trivial_augment_apply(const struct aug *a, const double *v, struct draws *r, struct canvas *c)
{
    augment_op_apply((enum policy)v[0], v[1], c);
}

const struct aug_kind aug_trivial_augment = {
    .name = "trivial_augment", .stage = AUG_PICTURE, .pixels = true,
    .text = "one change of fourteen, of random strength: torchvision's TrivialAugmentWide",
    .draw = trivial_augment_draw, .apply = trivial_augment_apply,
};
