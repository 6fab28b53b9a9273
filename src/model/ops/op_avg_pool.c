/* Average pooling; padding counts as zeros (torch.nn.AvgPool2d's default, count_include_pad). */
#include "model/ops/window.h"

static const struct attr_kind attrs[] = {
    {"kernel", A_INTS, 2, 1, 1024, "window size"},
    {"stride", A_INTS, 0, 1, 1024, "step of the window", .like = "kernel"},
    {"padding", A_INTS, 0, 0, 512, "zeros on each side"},
    {NULL},
};

static void avg_pool_forward(const struct op_call *c)
{
    struct window w;
    int64_t planes = pool_of_call(c, &w), is = window_in_size(&w), os = window_out_size(&w), ks = window_k_size(&w);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t o = 0; o < os; o++) {
            double sum = 0;
            for (int64_t q = 0; q < ks; q++) {
                int64_t at = window_at(&w, o, q);
                if (at >= 0) sum += ((const float *)c->in[0])[p * is + at];
            }
            ((float *)c->out)[p * os + o] = (float)(sum / (double)ks);
        }
}

static void avg_pool_backward_data(const struct op_call *c)
{
    struct window w;
    int64_t planes = pool_of_call(c, &w), is = window_in_size(&w), os = window_out_size(&w), ks = window_k_size(&w);
    for (int64_t p = 0; p < planes; p++)
        for (int64_t at = 0; at < is; at++) {
            double sum = 0;
            for (int64_t q = 0; q < ks; q++) {
                int64_t o = window_from(&w, at, q);
                if (o >= 0) sum += ((const float *)c->gout)[p * os + o];
            }
            ((float *)c->gin[0])[p * is + at] = (float)(sum / (double)ks);
        }
}

static const char *const examples[] = {"2x6x6 kernel=2 stride=2", "16x6x6 kernel=3 stride=2 padding=1", "3x8 kernel=2",
                                       "1x4x4x4 kernel=2 stride=2", NULL};
const struct op_kind op_avg_pool = {
    .name = "avg_pool",
    .text = "mean over windows",
    .keeps_layout = true,
    .attr = attrs,
    .infer = pool_infer,
    .forward = avg_pool_forward,
    .backward_data = avg_pool_backward_data,
    .examples = examples,
};
