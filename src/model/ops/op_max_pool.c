/* Max pooling: padding is never the maximum. Saves one byte per output element, the window position of the maximum (the
 * first of equal ones, as in PyTorch). */
#include <math.h>
#include <string.h>
#include "model/ops/window.h"

static const struct attr_kind attrs[] = {
    {"kernel", A_INTS, 2, 1, 256, "window size"},
    {"stride", A_INTS, 0, 1, 256, "step of the window", .like = "kernel"},
    {"padding", A_INTS, 0, 0, 128, "margin on each side"},
    {NULL},
};

/* A position must fit into a byte. */
static int max_pool_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    struct window w;
    if (window_make(n, in[0], &w, e)) return -1;
    if (window_k_size(&w) > 256)
        return err_set(e, E_CONF, "a window of %lld elements is larger than 256", (long long)window_k_size(&w));
    return pool_infer(n, in, f, e);
}

static size_t saved_bytes(const struct graph *g, const struct node *n, int samples)
{
    return (size_t)samples * (size_t)shape_count(&g->tensor[n->out].shape);
}

static void max_pool_forward(const struct op_call *c)
{
    struct window w;
    int64_t planes = pool_of_call(c, &w), is = window_in_size(&w), os = window_out_size(&w), ks = window_k_size(&w);
    uint8_t *where = c->saved;
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

static void max_pool_backward_data(const struct op_call *c)
{
    struct window w;
    int64_t planes = pool_of_call(c, &w), is = window_in_size(&w), os = window_out_size(&w);
    const uint8_t *where = c->saved;
    const float *gy = c->gout;
    float *gx = c->gin[0];
    memset(gx, 0, (size_t)(planes * is) * sizeof *gx);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t o = 0; o < os; o++) gx[p * is + window_at(&w, o, where[p * os + o])] += gy[p * os + o];
}

static const char *const examples[] = {"2x6x6 kernel=2 stride=2", "16x7x7 kernel=3 stride=2 padding=1",
                                       "3x9 kernel=3 stride=1", "1x4x4x4 kernel=2 stride=2", NULL};
const struct op_kind op_max_pool = {
    .name = "max_pool",
    .text = "maximum over windows",
    .keeps_layout = true,
    .attr = attrs,
    .infer = max_pool_infer,
    .saved_bytes = saved_bytes,
    .need_b = NEED_SAVED,
    .forward = max_pool_forward,
    .backward_data = max_pool_backward_data,
    .examples = examples,
};
