/* Repeats the channels `count` times: y[j] = x[j mod channels], like torch.Tensor.repeat along channels. */
#include "model/ops/repeat.h"

enum { A_COUNT };
static const struct attr_kind attrs[] = {{"count", A_INT, 2, 1, 1 << 20, "how many times"}, {NULL}};

static int repeat_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    f->out.d[0] *= n->attr[A_COUNT].i[0];
    return 0;
}

static void repeat_forward(const struct op_call *c)
{
    const struct repeat r = repeat_of(c->g, c->node);
    const float *x = c->in[0];
    float *y = c->out;
    for (int64_t i = 0; i < c->n * r.count * r.c; i++) {
        const float *from = x + (i / (r.count * r.c) * r.c + i % r.c) * r.points;
        for (int64_t p = 0; p < r.points; p++) *y++ = from[p];
    }
}

static void repeat_backward_data(const struct op_call *c)
{
    const struct repeat r = repeat_of(c->g, c->node);
    const float *gy = c->gout;
    float *gx = c->gin[0];
    const int64_t part = r.c * r.points;
    for (int n = 0; n < c->n; n++, gy += r.count * part)
        for (int64_t i = 0; i < part; i++) {
            double sum = 0;
            for (int64_t k = 0; k < r.count; k++) sum += gy[k * part + i];
            *gx++ = (float)sum;
        }
}

static const char *const examples[] = {"6", "1x3x3 count=16", "16x5 count=2", "3x2x3x2 count=3", "1x2x3x4 count=32",
                                       "4x3x3 count=8", NULL};
const struct op_kind op_repeat = {
    .name = "repeat",
    .text = "all channels several times, one copy after the other",
    .category = OP_REPEAT,
    .attr = attrs,
    .infer = repeat_infer,
    .forward = repeat_forward,
    .backward_data = repeat_backward_data,
    .examples = examples,
};
