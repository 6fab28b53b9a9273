/* Puts learned points before those of a sequence: channels x T becomes channels x (count + T). For the class token of
 * vision transformers: torch.cat([token.expand(n, -1, -1), x], 1) with channels last. */
#include <string.h>
#include "model/ops/learned.h"

enum { A_COUNT };
static const struct attr_kind attrs[] = {{"count", A_INT, 1, 1, 1 << 24, "how many"}, {NULL}};

static int prepend_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    char s[96];
    if (in[0]->n != 2)
        return err_set(e, E_CONF, "the input must be channels and points in a row, it is %s: put flatten first=1 "
                       "before it", shape_text(in[0], s));
    f->out.d[1] += n->attr[A_COUNT].i[0];
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", {3, {1, n->attr[A_COUNT].i[0], in[0]->d[0]}}};
    return 0;
}

static void prepend_forward(const struct op_call *call)
{
    const struct learned d = learned_of(call->g, call->node, call->n);
    const float *x = call->in[0], *w = call->param[0];
    float *y = call->out;
    const int64_t had = d.points - d.count;
    for (int64_t i = 0; i < d.n * d.c; i++, y += d.points, x += had) {
        for (int64_t p = 0; p < d.count; p++) y[p] = w[p * d.c + i % d.c];
        memcpy(y + d.count, x, (size_t)had * sizeof *y);
    }
}

static void prepend_backward_data(const struct op_call *call)
{
    const struct learned d = learned_of(call->g, call->node, call->n);
    const int64_t had = d.points - d.count;
    for (int64_t i = 0; i < d.n * d.c; i++)
        memcpy((float *)call->gin[0] + i * had, (const float *)call->gout + i * d.points + d.count,
               (size_t)had * sizeof(float));
}

static const char *const examples[] = {"6x4", "5x3 count=2", "16x7 count=3", NULL};
const struct op_kind op_prepend = {
    .name = "prepend",
    .text = "learned points before those of a sequence",
    .attr = attrs,
    .infer = prepend_infer,
    .forward = prepend_forward,
    .backward_data = prepend_backward_data,
    .backward_weights = learned_sum,
    .examples = examples,
};
