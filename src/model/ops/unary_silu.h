/* y = x s, s = 1 / (1 + e^-x): SiLU or Swish (Elfwing and others 2017), torch.nn.SiLU; y' = s (1 + x (1 - s)). */
#ifndef OPS_UNARY_SILU_H
#define OPS_UNARY_SILU_H
#include "model/ops/unary.h"

UNARY_FN float silu_value(float x, float a) { (void)a; return x * unary_sigmoid(x); }
UNARY_FN float silu_slope(float x, float a)
{
    const float s = unary_sigmoid(x);
    (void)a;
    return s * (1.0f + x * (1.0f - s));
}

UNARY_RULE(silu, UNARY_FROM_INPUT, "x * sigmoid(x)", {NULL})
#endif
