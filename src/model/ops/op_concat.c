/* Concatenation along channels (the first dimension of a sample). */
#include <string.h>
#include "model/op.h"

static int concat_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    for (int i = 1; i < n->n_in; i++) {
        bool same = in[i]->n == in[0]->n;
        for (int d = 1; same && d < in[0]->n; d++) same = in[i]->d[d] == in[0]->d[d];
        char a[96], b[96];
        if (!same)
            return err_set(e, E_CONF, "parts differ beyond their channels: %s and %s", shape_text(in[0], a),
                           shape_text(in[i], b));
        f->out.d[0] += in[i]->d[0];
    }
    return 0;
}

static size_t part(const struct op_call *c, int k) { return (size_t)shape_count(&c->g->tensor[c->node->in[k]].shape); }

static void concat_forward(const struct op_call *c)
{
    float *y = c->out;
    for (int n = 0; n < c->n; n++)
        for (int k = 0; k < c->node->n_in; k++) {
            memcpy(y, (const float *)c->in[k] + (size_t)n * part(c, k), part(c, k) * sizeof *y);
            y += part(c, k);
        }
}

static void concat_backward_data(const struct op_call *c)
{
    const float *gy = c->gout;
    for (int n = 0; n < c->n; n++)
        for (int k = 0; k < c->node->n_in; k++) {
            if (c->gin[k]) memcpy((float *)c->gin[k] + (size_t)n * part(c, k), gy, part(c, k) * sizeof *gy);
            gy += part(c, k);
        }
}

static const char *const examples[] = {"3 + 4", "2x3x3 + 4x3x3 + 1x3x3", "16x2x2 + 16x2x2", "3 + =0", "16x2x2 + =0",
                                       "2x3x3 + =0 + 4x3x3", "16x3x3 + 4x3x3 + =0", "3x2 + 16x2 + =1", "3x4 + =0 + =0",
                                       NULL};
const struct op_kind op_concat = {
    .name = "concat",
    .text = "concatenation along channels",
    .keeps_layout = true,
    .n_in = 2,
    .max_in = MAX_IN,
    .infer = concat_infer,
    .forward = concat_forward,
    .backward_data = concat_backward_data,
    .examples = examples,
};
