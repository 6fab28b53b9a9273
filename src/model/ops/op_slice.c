/* Part of a tensor along one dimension, like torch.narrow. */
#include <string.h>
#include "model/ops/slice.h"

static const struct attr_kind attrs[] = {
    {"dim", A_INT, 0, 0, MAX_DIMS - 1, "along which dimension of a sample; 0: channels"},
    {"first", A_INT, 0, 0, 1 << 24, "where the part begins"},
    {"count", A_INT, 0, 1, 1 << 24, "how many of the dimension it has"},
    {NULL},
};

static int slice_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int64_t dim = n->attr[SLICE_DIM].i[0], first = n->attr[SLICE_FIRST].i[0], count = n->attr[SLICE_COUNT].i[0];
    char s[96];
    if (count < 1) return err_set(e, E_CONF, "count is missing");
    if (dim >= in[0]->n) return err_set(e, E_CONF, "the input %s has no dimension %lld", shape_text(in[0], s),
                                        (long long)dim);
    if (first + count > in[0]->d[dim])
        return err_set(e, E_CONF, "%lld from %lld on are beyond dimension %lld of the input, %s", (long long)count,
                       (long long)first, (long long)dim, shape_text(in[0], s));
    f->out.d[dim] = count;
    return 0;
}

static void slice_forward(const struct op_call *c)
{
    const struct slice s = slice_of(c->g, c->node, c->n, false);
    for (int64_t i = 0; i < s.outer; i++)
        memcpy((float *)c->out + i * s.part, (const float *)c->in[0] + i * s.width + s.first,
               (size_t)s.part * sizeof(float));
}

static void slice_backward_data(const struct op_call *c)
{
    const struct slice s = slice_of(c->g, c->node, c->n, false);
    memset(c->gin[0], 0, (size_t)(s.outer * s.width) * sizeof(float));
    for (int64_t i = 0; i < s.outer; i++)
        memcpy((float *)c->gin[0] + i * s.width + s.first, (const float *)c->gout + i * s.part,
               (size_t)s.part * sizeof(float));
}

static const char *const examples[] = {"6 first=2 count=3", "4x5 dim=1 count=1", "16x3x4 first=8 count=8",
                                       "3x4x5x2 dim=2 first=1 count=3", "2x3x4 dim=1 first=2 count=1", NULL};
const struct op_kind op_slice = {
    .name = "slice",
    .text = "part of a tensor along one dimension",
    .attr = attrs,
    .infer = slice_infer,
    .forward = slice_forward,
    .backward_data = slice_backward_data,
    .examples = examples,
};
