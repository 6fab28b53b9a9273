/* y = factor x. */
#ifndef OPS_UNARY_TIMES_H
#define OPS_UNARY_TIMES_H
#include "model/ops/unary.h"

UNARY_FN float times_value(float x, float factor) { return factor * x; }
/* Of the output, which readers with weights keep anyway; it plays no part. */
UNARY_FN float times_slope(float y, float factor) { (void)y; return factor; }

UNARY_RULE(times, UNARY_FROM_OUTPUT, "factor * x", {"factor", A_REAL, 1, -1e9, 1e9, "the number"})
#endif
