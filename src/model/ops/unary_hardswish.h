/* y = x hardsigmoid(x) (Howard and others 2019), torch.nn.Hardswish; y' = x / 3 + 1/2 from -3 to 3 (corners included),
 * 0 below -3, 1 above 3. */
#ifndef OPS_UNARY_HARDSWISH_H
#define OPS_UNARY_HARDSWISH_H
#include "model/ops/unary.h"

UNARY_FN float hardswish_value(float x, float a)
{
    float v = x + 3.0f;
    (void)a;
    v = v <= 0 ? 0 : v;
    v = v > 6.0f ? 6.0f : v;
    return x * v / 6.0f;
}
UNARY_FN float hardswish_slope(float x, float a)
{
    const float middle = x / 3.0f + 0.5f;
    (void)a;
    return x < -3.0f ? 0 : x > 3.0f ? 1.0f : middle;
}

UNARY_RULE(hardswish, UNARY_FROM_INPUT, "x * hardsigmoid(x)", {NULL})
#endif
