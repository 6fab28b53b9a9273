/* Instance norm: group norm with single channels as groups, as in torch.nn.InstanceNorm2d without running statistics.
 * By default it has no weights. See group_norm.c. */
#include "model/ops/group_norm.h"

static const struct attr_kind attrs[] = {{"eps", A_REAL, 1e-5, 1e-12, 1, "added to the variance"},
                                         {"affine", A_BOOL, 0, 0, 1, "a weight and a bias of each channel"},
                                         {NULL}};

static int instance_norm_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    return group_norm_infer(n, in[0], in[0]->d[0], f, e);
}

static const char *const examples[] = {"16x3x3", "5x7 affine=yes", "3x2x3x2 eps=0.01", "32x4x4 affine=yes", NULL};
const struct op_kind op_instance_norm = {
    .name = "instance_norm",
    .text = "normalisation of each channel of each sample",
    .category = OP_NORM_SAMPLES,
    .keeps_layout = true,
    .attr = attrs,
    .infer = instance_norm_infer,
    .saved_bytes = group_norm_saved,
    .need_b = 1 << 0 | NEED_SAVED,
    .pgrad_in_b = 3,
    .forward = group_norm_forward,
    .backward_data = group_norm_backward,
    .examples = examples,
};
