/* y = x / 6 + 1/2 within 0 and 1, torch.nn.Hardsigmoid. */
#ifndef OPS_UNARY_HARDSIGMOID_H
#define OPS_UNARY_HARDSIGMOID_H
#include "model/ops/unary.h"

UNARY_FN float hardsigmoid_value(float x, float a)
{
    float v = x + 3.0f;
    (void)a;
    v = v <= 0 ? 0 : v;
    v = v > 6.0f ? 6.0f : v;
    return v / 6.0f;
}
UNARY_FN float hardsigmoid_slope(float y, float a) { (void)a; return y <= 0 || y >= 1.0f ? 0 : 1.0f / 6.0f; }

UNARY_RULE(hardsigmoid, UNARY_FROM_OUTPUT, "x / 6 + 1/2 within 0 and 1", {NULL})
#endif
