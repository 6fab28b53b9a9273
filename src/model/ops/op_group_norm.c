/* Group norm, as torch.nn.GroupNorm: group_norm.c. */
#include "model/ops/group_norm.h"

static const struct attr_kind attrs[] = {{"groups", A_INT, 1, 1, 1 << 20, "so many groups of neighbouring channels"},
                                         {"eps", A_REAL, 1e-5, 1e-12, 1, "added to the variance"},
                                         {"affine", A_BOOL, 1, 0, 1, "a weight and a bias of each channel"},
                                         {NULL}};

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    return group_norm_infer(n, in[0], n->attr[0].i[0], f, e);
}

static const char *const examples[] = {"6 groups=2", "16x3x3 groups=16", "32x5 groups=4 affine=no",
                                       "6x2x3x2 groups=3 eps=0.001", "5x7x9", "48x4x2 groups=3", NULL};
const struct op_kind op_group_norm = {
    .name = "group_norm",
    .text = "normalisation over groups of channels of each sample",
    .category = OP_NORM_SAMPLES,
    .keeps_layout = true,
    .attr = attrs,
    .infer = infer,
    .saved_bytes = group_norm_saved,
    .need_b = 1 << 0 | NEED_SAVED,
    .pgrad_in_b = 3,
    .forward = group_norm_forward,
    .backward_data = group_norm_backward,
    .examples = examples,
};
