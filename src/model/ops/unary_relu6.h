/* y = x within 0 and 6, torch.nn.ReLU6; the gradient passes strictly between. */
#ifndef OPS_UNARY_RELU6_H
#define OPS_UNARY_RELU6_H
#include "model/ops/unary.h"

UNARY_FN float relu6_value(float x, float a)
{
    const float v = x <= 0 ? 0 : x;
    (void)a;
    return v > 6.0f ? 6.0f : v;
}
UNARY_FN float relu6_slope(float y, float a) { (void)a; return y <= 0 || y >= 6.0f ? 0 : 1.0f; }

UNARY_RULE(relu6, UNARY_FROM_OUTPUT, "x within 0 and 6", {NULL})
#endif
