/* Rotary position embedding (Su and others 2021): each pair of channels of a head, i and i + width / 2, is turned by an
 * angle that grows with the position, as in Hugging Face's decoders. The second input has the positions; without it,
 * they are the indices of the points. */
#include "model/ops/rotary.h"

static const struct attr_kind attrs[] = {
    [ROTARY_HEADS] = {"heads", A_INT, 1, 1, 1 << 16, "how many share the channels"},
    [ROTARY_THETA] = {"theta", A_REAL, 10000, 1, 1e12, "base of the wave lengths"},
    [ROTARY_TYPE] = {"type", A_WORD, 0, 0, 2, "how positions beyond the first training's context are scaled",
                     .words = "default linear llama3"},
    [ROTARY_FACTOR] = {"factor", A_REAL, 1, 1, 1e6, "of linear and llama3: by what angles are divided"},
    [ROTARY_LOW] = {"low", A_REAL, 1, 1e-3, 1e6, "of llama3: low_freq_factor"},
    [ROTARY_HIGH] = {"high", A_REAL, 4, 1e-3, 1e6, "of llama3: high_freq_factor"},
    [ROTARY_OLD] = {"old", A_INT, 8192, 1, 1 << 30, "of llama3: original_max_position_embeddings"},
    {NULL}};

static int rotary_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int64_t heads = n->attr[ROTARY_HEADS].i[0], c = in[0]->d[0];
    char a[96], b[96];
    if (c % (2 * heads))
        return err_set(e, E_CONF, "%lld channels are not a multiple of %lld heads of an even width", (long long)c,
                       (long long)heads);
    if (n->attr[ROTARY_HIGH].r <= n->attr[ROTARY_LOW].r)
        return err_set(e, E_CONF, "high is %g, which is not above low", n->attr[ROTARY_HIGH].r);
    if (in[0]->n < 2) return err_set(e, E_CONF, "the input has no positions: expected channels, then positions");
    if (n->n_in < 2 || shape_count(in[1]) == shape_count(in[0]) / c) return 0;
    return err_set(e, E_CONF, "positions %s do not fit the input %s", shape_text(in[1], a), shape_text(in[0], b));
}

/* y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin; sign -1 turns back, which is the gradient. */
static void turn(const struct op_call *call, const float *x, float *y, double sign)
{
    const struct rotary r = rotary_of(call->g, call->node, call->n);
    const int32_t *positions = call->node->n_in > 1 ? call->in[1] : NULL;
    for (int64_t i = 0; i < r.half; i++) {
        const float rate = rotary_rate(call->node, i, r.half);
        for (int64_t n = 0; n < r.n; n++)
            for (int64_t p = 0; p < r.points; p++) {
                const float angle = rotary_angle(rotary_position(positions, r.points, n, p), rate);
                const double c = cos(angle), s = sign * sin(angle);
                for (int64_t h = 0; h < r.heads; h++) {
                    const int64_t one = ((n * r.heads + h) * 2 * r.half + i) * r.points + p,
                                  two = one + r.half * r.points;
                    const double x1 = x[one], x2 = x[two];
                    y[one] = (float)(x1 * c - x2 * s);
                    y[two] = (float)(x2 * c + x1 * s);
                }
            }
    }
}

static void rotary_forward(const struct op_call *call) { turn(call, call->in[0], call->out, 1); }
static void rotary_backward_data(const struct op_call *call) { turn(call, call->gout, call->gin[0], -1); }

static const char *const examples[] = {"6x5", "12x7 heads=3 theta=500", "8x4 + 4 I32 heads=2",
                                       "16x3x4 type=linear factor=4",
                                       "32x40 heads=2 type=llama3 factor=8 old=32 theta=100", NULL};
const struct op_kind op_rotary = {
    .name = "rotary",
    .text = "turns pairs of channels of each head by angles that grow with the position",
    .n_in = 1,
    .max_in = 2,
    .takes = {TAKES(F32), TAKES(I32)},
    .attr = attrs,
    .infer = rotary_infer,
    .need_b = 1 << 1,
    .forward = rotary_forward,
    .backward_data = rotary_backward_data,
    .examples = examples,
};
