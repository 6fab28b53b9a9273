/* A power of the remaining fraction: torch.optim.lr_scheduler.PolynomialLR, but ending at any rate instead of 0. */
#include <math.h>
#include "optim/rate.h"

static double polynomial_at(const struct conf *c, double base, double t, double span)
{
    double end = c->train.learning_rate_end;
    return end + (base - end) * pow(1 - (t < span ? t / span : 1), c->train.power);
}

const struct rate_kind rate_polynomial = {
    "polynomial",
    "a power (train.power) of what is left of the run, from train.learning_rate to train.learning_rate_end (torch's "
    "PolynomialLR)",
    polynomial_at};
