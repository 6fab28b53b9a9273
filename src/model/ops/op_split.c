/* A tensor in parts along one dimension, each an output, like torch.split. */
#include <string.h>
#include "model/ops/slice.h"

static const struct attr_kind attrs[] = {
    {"sizes", A_LIST, 0, 1, 1 << 24, "how many of the dimension each part has; all together have all"},
    {"dim", A_INT, 0, 0, MAX_DIMS - 1, "along which dimension of a sample; 0: channels"},
    {NULL},
};

static int split_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const struct attr_value *size = &n->attr[SPLIT_SIZES];
    const int64_t dim = n->attr[SPLIT_DIM].i[0];
    int64_t all = 0;
    char s[96];
    if (size->i[0] < 1) return err_set(e, E_CONF, "sizes is missing");
    if (dim >= in[0]->n) return err_set(e, E_CONF, "the input %s has no dimension %lld", shape_text(in[0], s),
                                        (long long)dim);
    f->n_out = size->n;
    for (int i = 0; i < size->n; i++) {
        f->outs[i] = *in[0];
        f->outs[i].d[dim] = size->i[i];
        all += size->i[i];
    }
    if (all == in[0]->d[dim]) return 0;
    return err_set(e, E_CONF, "the parts have %lld together, dimension %lld of the input %s has %lld", (long long)all,
                   (long long)dim, shape_text(in[0], s), (long long)in[0]->d[dim]);
}

static void split_forward(const struct op_call *c)
{
    for (int k = 0; k < c->node->n_out; k++) {
        const struct slice s = split_of(c->g, c->node, k, c->n, false);
        for (int64_t i = 0; i < s.outer; i++)
            memcpy((float *)c->outs[k] + i * s.part, (const float *)c->in[0] + i * s.width + s.first,
                   (size_t)s.part * sizeof(float));
    }
}

/* The gradient of a part that the loss does not depend on is zero. */
static void split_backward_data(const struct op_call *c)
{
    for (int k = 0; k < c->node->n_out; k++) {
        const struct slice s = split_of(c->g, c->node, k, c->n, false);
        for (int64_t i = 0; i < s.outer; i++) {
            float *to = (float *)c->gin[0] + i * s.width + s.first;
            if (!c->gouts[k]) memset(to, 0, (size_t)s.part * sizeof(float));
            else memcpy(to, (const float *)c->gouts[k] + i * s.part, (size_t)s.part * sizeof(float));
        }
    }
}

static const char *const examples[] = {"6 sizes=2x3x1", "4x5 sizes=1x4 dim=1", "16x3x4 sizes=8x8", "5x2 sizes=5",
                                       "3x4x5x2 sizes=1x2x2 dim=2", NULL};
const struct op_kind op_split = {
    .name = "split",
    .text = "a tensor in parts along one dimension, each an output",
    .attr = attrs,
    .infer = split_infer,
    .forward = split_forward,
    .backward_data = split_backward_data,
    .examples = examples,
};
