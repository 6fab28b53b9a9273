/* y = 1 / (1 + e^-x), torch.nn.Sigmoid; y' = y (1 - y). */
#ifndef OPS_UNARY_SIGMOID_H
#define OPS_UNARY_SIGMOID_H
#include "model/ops/unary.h"

UNARY_FN float sigmoid_value(float x, float a) { (void)a; return unary_sigmoid(x); }
UNARY_FN float sigmoid_slope(float y, float a) { (void)a; return y * (1.0f - y); }

UNARY_RULE(sigmoid, UNARY_FROM_OUTPUT, "1 / (1 + exp(-x))", {NULL})
#endif
