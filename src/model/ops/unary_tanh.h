/* Hyperbolic tangent, torch.nn.Tanh; y' = 1 - y^2. */
#ifndef OPS_UNARY_TANH_H
#define OPS_UNARY_TANH_H
#include "model/ops/unary.h"

UNARY_FN float tanh_value(float x, float a) { (void)a; return unary_tanh(x); }
UNARY_FN float tanh_slope(float y, float a) { (void)a; return 1.0f - y * y; }

UNARY_RULE(tanh, UNARY_FROM_OUTPUT, "hyperbolic tangent", {NULL})
#endif
