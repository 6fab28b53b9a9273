/* A straight line: torch.optim.lr_scheduler.LinearLR with end_factor = learning_rate_end / learning_rate. */
#include "optim/rate.h"

static double linear_at(const struct conf *c, double base, double t, double span)
{
    double end = c->train.learning_rate_end;
    return end + (base - end) * (1 - (t < span ? t / span : 1));
}

const struct rate_kind rate_linear = {
    "linear", "a straight line from train.learning_rate to train.learning_rate_end (torch's LinearLR)", linear_at};
