/* Steps down: torch.optim.lr_scheduler.MultiStepLR (milestones), StepLR (step_size). Milestone m takes effect after m
 * steps or epochs. */
#include <math.h>
#include "optim/rate.h"

static double step_at(const struct conf *c, double base, double t, double span)
{
    (void)span;
    for (int i = 0; i < c->train.milestones.n; i++)
        if (t >= (double)c->train.milestones.v[i]) base *= c->train.gamma;
    return c->train.step_size ? base * pow(c->train.gamma, floor(t / (double)c->train.step_size)) : base;
}

const struct rate_kind rate_step = {
    "step",
    "multiplied by train.gamma at each of train.milestones (torch's MultiStepLR), or every train.step_size (StepLR)",
    step_at};
