/* y = x above zero, else alpha (e^x - 1), torch.nn.ELU (Clevert and others 2016); y' = y + alpha there. */
#ifndef OPS_UNARY_ELU_H
#define OPS_UNARY_ELU_H
#include "model/ops/unary.h"

/* e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2). This is accurate near zero, where e^x - 1 would cancel. */
UNARY_FN float elu_value(float x, float alpha)
{
    const float t = unary_tanh(0.5f * x), near = 2.0f * t / (1.0f - t), far = unary_exp(x) - 1.0f;
    const float below = alpha * (x > -1.0f ? near : far);
    return x > 0 ? x : below;
}
UNARY_FN float elu_slope(float y, float alpha) { return y > 0 ? 1.0f : y + alpha; }

UNARY_RULE(elu, UNARY_FROM_OUTPUT, "x above zero, alpha * (exp(x) - 1) below",
           {"alpha", A_REAL, 1, 0, 1e3, "minus the limit below"})
#endif
