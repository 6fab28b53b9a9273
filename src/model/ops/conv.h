/* Reference loops of convolutions, which transposed convolutions use the other way round. Plain layouts, float; each
 * element is one sum in double. Pure. */
#ifndef OPS_CONV_H
#define OPS_CONV_H
#include "model/ops/window.h"

/* n samples of c channels by w.in points become o channels by w.out points. Weights are [o][c / groups][kernel]. */
struct conv { struct window w; int64_t n, c, o, groups; };
/* Of a node that is a convolution; of a transposed one the convolution whose input gradient it computes. */
struct conv conv_of(const struct op_call *c);

/* op_kind's functions, of both. Weights begin as torch's do: uniform, by how many values an output reads. */
int conv_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e);
uint64_t conv_flops(const struct graph *g, const struct node *n);

/* y = weights over windows of x, plus bias[o] (NULL: none) */
void conv_forward(const struct conv *k, const float *x, const float *weight, const float *bias, float *y);
/* gx = the gradient of x for that of y, plus bias[c] (NULL: none) */
void conv_data(const struct conv *k, const float *gy, const float *weight, const float *bias, float *gx);
/* gw = the gradient of the weights */
void conv_weights(const struct conv *k, const float *x, const float *gy, float *gw);
/* gb[channel] = sum over n samples and all points of g[n][channels][points] */
void conv_bias(int64_t n, int64_t channels, int64_t points, const float *g, float *gb);
#endif
