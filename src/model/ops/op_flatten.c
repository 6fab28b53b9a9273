/* Joins dimensions into one, row-major: all of a sample's, or those from `first` on, as torch.nn.Flatten does. */
#include <string.h>
#include "model/op.h"

enum { A_FIRST };
static const struct attr_kind attrs[] = {
    {"first", A_INT, 0, 0, MAX_DIMS - 1, "dimensions before it stay as they are: 1 leaves channels alone"}, {NULL}};

static int flatten_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int first = (int)n->attr[A_FIRST].i[0];
    char s[96];
    if (first && first >= in[0]->n)
        return err_set(e, E_CONF, "the input %s has no dimension %d", shape_text(in[0], s), first);
    f->out.n = first + 1;
    for (int i = first + 1; i < in[0]->n; i++) f->out.d[first] *= in[0]->d[i];
    return 0;
}

static size_t bytes(const struct op_call *c) { return (size_t)op_count(c) * sizeof(float); }
static void flatten_forward(const struct op_call *c) { memcpy(c->out, c->in[0], bytes(c)); }
static void flatten_backward_data(const struct op_call *c) { memcpy(c->gin[0], c->gout, bytes(c)); }

static const char *const examples[] = {"3x4x4", "16x2x2", "16x1x1", "5", "3x4x4 first=1", "6x2x3x2 first=2",
                                       "16x2x2 first=1", NULL};
const struct op_kind op_flatten = {
    .name = "flatten",
    .text = "dimensions become one",
    .attr = attrs,
    .infer = flatten_infer,
    .forward = flatten_forward,
    .backward_data = flatten_backward_data,
    .examples = examples,
};
