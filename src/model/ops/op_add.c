/* Sum of two to eight tensors of one shape, added in input order. Each gets the unchanged gradient. */
#include <string.h>
#include "model/op.h"

static int add_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    char a[96], b[96];
    for (int i = 1; i < n->n_in; i++)
        if (!shape_equal(in[0], in[i]))
            return err_set(e, E_CONF, "summands differ: %s and %s", shape_text(in[0], a), shape_text(in[i], b));
    return 0;
}

static void add_forward(const struct op_call *c)
{
    float *y = c->out;
    for (int64_t i = 0, n = op_count(c); i < n; i++) {
        float sum = ((const float *)c->in[0])[i];
        for (int k = 1; k < c->node->n_in; k++) sum += ((const float *)c->in[k])[i];
        y[i] = sum;
    }
}

static void add_backward_data(const struct op_call *c)
{
    for (int k = 0; k < c->node->n_in; k++)
        if (c->gin[k]) memcpy(c->gin[k], c->gout, (size_t)op_count(c) * sizeof(float));
}

static const char *const examples[] = {"6 + 6", "16x3x3 + 16x3x3", "2x3 + 2x3 + 2x3", "6 + =0", "16x3x3 + =0",
                                       "2x3 + =0 + 2x3", "16x3x3 + 16x3x3 + =0", "5x2 + 5x2 + =1", "2x3 + =0 + =0",
                                       NULL};
const struct op_kind op_add = {
    .name = "add",
    .text = "sum of tensors of one shape",
    .category = OP_ADD,
    .keeps_layout = true,
    .n_in = 2,
    .max_in = MAX_IN,
    .infer = add_infer,
    .forward = add_forward,
    .backward_data = add_backward_data,
    .examples = examples,
};
