/* Sizes and reference loops of convolutions; transposed convolutions use them in the opposite direction. Plain layouts,
 * float; each element is one sum in double. Pure. */
#ifndef OPS_CONV_H
#define OPS_CONV_H
#include "model/ops/window.h"

/* Maps n samples of c channels with w.in points to o channels with w.out points. Weights:
 * [o][c / groups][kernel]. */
struct conv { struct window w; int64_t n, c, o, groups; };
/* For a convolution. For a transposed one: the convolution whose input gradient it computes. */
struct conv conv_of(const struct op_call *c);

/* op_kind's functions for both. Weights are initialised like torch's: uniform, scaled by fan-in. */
int conv_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e);
uint64_t conv_flops(const struct graph *g, const struct node *n);

/* y = weights over windows of x, plus bias[o] (NULL: none) */
void conv_forward(const struct conv *k, const float *x, const float *weight, const float *bias, float *y);
/* gx = gradient of x from that of y, plus bias[c] (NULL: none) */
void conv_data(const struct conv *k, const float *gy, const float *weight, const float *bias, float *gx);
/* gw = gradient of the weights */
void conv_weights(const struct conv *k, const float *x, const float *gy, float *gw);
/* gb[channel] = sum over n samples and all points of g[n][channels][points] */
void conv_bias(int64_t n, int64_t channels, int64_t points, const float *g, float *gb);
#endif
