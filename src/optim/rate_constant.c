/* The same rate in all steps. */
#include "optim/rate.h"

static double constant_at(const struct conf *c, double base, double t, double span)
{
    (void)c, (void)t, (void)span;
    return base;
}

const struct rate_kind rate_constant = {"constant", "the same rate in all steps", constant_at};
