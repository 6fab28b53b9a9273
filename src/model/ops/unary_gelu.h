/* GELU (Hendrycks and Gimpel 2016), torch.nn.GELU: y = x F(x), F the normal distribution function. Exact: F = (1 +
 * erf(x / sqrt 2)) / 2, y' = F + x f(x), f = e^(-x^2/2) / sqrt(2 pi). By tanh: F = (1 + tanh u) / 2, u = sqrt(2 / pi)
 * (x + 0.044715 x^3), y' = F + x (1 - tanh^2 u) u' / 2. */
#ifndef OPS_UNARY_GELU_H
#define OPS_UNARY_GELU_H
#include "model/ops/unary.h"

UNARY_FN float gelu_value(float x, float by_tanh)
{
    if (by_tanh != 0) return 0.5f * x * (1.0f + unary_tanh(0.797884561f * (x + 0.044715f * x * x * x)));
    return 0.5f * x * (1.0f + unary_erf(x * 0.707106781f));
}
UNARY_FN float gelu_slope(float x, float by_tanh)
{
    if (by_tanh != 0) {
        const float s = x * x, t = unary_tanh(0.797884561f * (x + 0.044715f * x * s));
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 0.134145f * s);
    }
    return 0.5f * (1.0f + unary_erf(x * 0.707106781f)) + x * 0.398942280f * unary_exp(-0.5f * x * x);
}

UNARY_RULE(gelu, UNARY_FROM_INPUT, "x times the normal distribution's function",
           {"form", A_WORD, 0, 0, 1, "exact, or approximated by tanh", .words = "exact tanh"})
#endif
