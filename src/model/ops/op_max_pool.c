/* Max pooling: padding never wins. Keeps one byte an output element, the window position of the maximum (the first one
 * of equals, as PyTorch). */
#include <math.h>
#include <string.h>
#include "model/ops/window.h"

enum { A_KERNEL, A_STRIDE, A_PADDING };
static const struct attr_kind attrs[] = {
    {"kernel", A_INTS, 2, 1, 256, "window size"},
    {"stride", A_INTS, 1, 1, 256, "step of the window"},
    {"padding", A_INTS, 0, 0, 128, "margin on each side"},
    {NULL},
};

static int geometry(const struct node *n, const struct shape *in, struct window *w, struct err *e)
{
    return window_make(in, &n->attr[A_KERNEL], &n->attr[A_STRIDE], &n->attr[A_PADDING], NULL, w, e);
}

static int infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    if (geometry(n, in[0], &w, e)) return -1;
    if (window_k_size(&w) > 256)
        return err_set(e, E_CONF, "a window of %lld elements is larger than 256", (long long)window_k_size(&w));
    for (int i = 0; i < 3; i++)
        if (2 * w.p[i] > w.k[i]) return err_set(e, E_CONF, "padding is more than half of the kernel");
    window_shape(&w, in[0]->d[0], in[0]->n - 1, &f->out);
    return 0;
}

static size_t extra_bytes(const struct graph *g, const struct node *n, int samples)
{
    return (size_t)samples * (size_t)shape_count(&g->tensor[n->out].shape);
}

static void forward(const struct op_call *c)
{
    struct window w;
    geometry(c->node, &c->g->tensor[c->node->in[0]].shape, &w, NULL);
    int64_t planes = c->n * c->g->tensor[c->node->in[0]].shape.d[0], is = window_in_size(&w), os = window_out_size(&w),
            ks = window_k_size(&w);
    uint8_t *where = c->extra;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t o = 0; o < os; o++) {
            float best = -INFINITY;
            int64_t best_at = -1;
            for (int64_t q = 0; q < ks; q++) {
                int64_t at = window_at(&w, o, q);
                float v = at < 0 ? 0 : ((const float *)c->in[0])[p * is + at];
                if (at >= 0 && (best_at < 0 || v > best || isnan(v))) { best = v; best_at = q; }
            }
            ((float *)c->out)[p * os + o] = best;
            if (where) where[p * os + o] = (uint8_t)best_at;
        }
}

static void backward_data(const struct op_call *c)
{
    struct window w;
    geometry(c->node, &c->g->tensor[c->node->in[0]].shape, &w, NULL);
    int64_t planes = c->n * c->g->tensor[c->node->in[0]].shape.d[0], is = window_in_size(&w), os = window_out_size(&w);
    float *gx = c->gin[0];
    memset(gx, 0, (size_t)(planes * is) * sizeof *gx);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t o = 0; o < os; o++)
            gx[p * is + window_at(&w, o, ((const uint8_t *)c->extra)[p * os + o])] += ((const float *)
                                                                                           c->gout)[p * os + o];
}

static const char *const examples[] = {"2x6x6 kernel=2 stride=2", "16x7x7 kernel=3 stride=2 padding=1",
                                       "3x9 kernel=3 stride=1", "1x4x4x4 kernel=2 stride=2", NULL};
const struct op_kind op_max_pool = {
    .name = "max_pool",
    .text = "maximum over windows",
    .min_in = 1,
    .max_in = 1,
    .attr = attrs,
    .infer = infer,
    .extra_bytes = extra_bytes,
    .need_b = NEED_EXTRA,
    .grad_in = 1,
    .forward = forward,
    .backward_data = backward_data,
    .examples = examples,
};
