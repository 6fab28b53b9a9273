/* What kernels of "softmax" share. */
#ifndef MODEL_OPS_SOFTMAX_H
#define MODEL_OPS_SOFTMAX_H
#include "model/op.h"

static inline bool softmax_is_log(const struct node *n) { return n->attr[0].i[0]; }

#endif
