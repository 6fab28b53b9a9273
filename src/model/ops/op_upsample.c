/* Resizes spatial dimensions, as torch.nn.Upsample does: takes the nearest point below, or interpolates linearly
 * between neighbours in each dimension (linear, bilinear, trilinear). With fewer points it does not average: values
 * between are ignored. */
#include "model/ops/upsample.h"
#include "model/ops/window.h"

enum { A_FACTOR, A_SIZE, A_LINEAR, A_CORNERS };
static const struct attr_kind attrs[] = {
    {"factor", A_INTS, 2, 1, 1024, "so many times as many points"},
    {"size", A_INTS, 0, 0, 1 << 16, "output size, whatever the factor says; 0: by the factor"},
    {"linear", A_BOOL, 0, 0, 1, "linear between neighbours; otherwise the nearest value below"},
    {"align_corners", A_BOOL, 0, 0, 1, "of linear: the outermost points stay where they are, not the outer edges"},
    {NULL},
};

static int upsample_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int spatial = space_check(n, in[0], e);
    if (spatial < 0) return -1;
    if (n->attr[A_CORNERS].i[0] && !n->attr[A_LINEAR].i[0])
        return err_set(e, E_CONF, "align_corners without linear");
    for (int i = 0; i < spatial; i++) {
        int64_t to = space_value(&n->attr[A_SIZE], i);
        f->out.d[i + 1] = to ? to : in[0]->d[i + 1] * space_value(&n->attr[A_FACTOR], i);
    }
    return 0;
}

static void forward(const struct op_call *c)
{
    const struct upsample u = upsample_of(c->g, c->node, c->n, 1);
    upsample_forward(&u, c->in[0], c->out);
}

static void upsample_backward_data(const struct op_call *c)
{
    const struct upsample u = upsample_of(c->g, c->node, c->n, 1);
    upsample_backward(&u, c->gout, c->gin[0], false);
}

static const char *const examples[] = {"3x3x4",
                                       "16x3x3 factor=2x3",
                                       "2x4x5 linear=yes",
                                       "16x3x4 factor=3x2 linear=yes align_corners=yes",
                                       "2x6x7 size=3x10",
                                       "3x7x5 size=4x8 linear=yes",
                                       "2x6 factor=3 linear=yes",
                                       "2x1x3 factor=2 linear=yes align_corners=yes",
                                       "3x2x3x2 linear=yes",
                                       "2x2x3x4 size=3x1x5 linear=yes align_corners=yes",
                                       "2x2x2x2",
                                       NULL};
const struct op_kind op_upsample = {
    .name = "upsample",
    .text = "another number of points in space, by the nearest value or linear between neighbours",
    .keeps_layout = true,
    .attr = attrs,
    .infer = upsample_infer,
    .forward = forward,
    .backward_data = upsample_backward_data,
    .examples = examples,
};
