/* op_call.saved of layer norm for a micro-batch: two floats for each sample and point, mean and 1 / sqrt(var + eps).
 * Kernels of every backend write this layout. */
#ifndef OPS_LAYER_NORM_H
#define OPS_LAYER_NORM_H
#include "model/op.h"
static inline double layer_norm_eps(const struct node *n) { return n->attr[0].r; }
static inline bool layer_norm_biased(const struct node *n) { return n->attr[1].i[0] != 0; }
#endif
