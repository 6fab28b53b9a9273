/* y = x above zero, else `slope` x, torch.nn.LeakyReLU. */
#ifndef OPS_UNARY_LEAKY_RELU_H
#define OPS_UNARY_LEAKY_RELU_H
#include "model/ops/unary.h"

UNARY_FN float leaky_relu_value(float x, float slope) { return x <= 0 ? slope * x : x; }
UNARY_FN float leaky_relu_slope(float x, float slope) { return x <= 0 ? slope : 1.0f; }

UNARY_RULE(leaky_relu, UNARY_FROM_INPUT, "x above zero, slope * x below",
           {"slope", A_REAL, 0.01, -1e3, 1e3, "factor below zero"})
#endif
