/* Half a cosine: torch.optim.lr_scheduler.CosineAnnealingLR with eta_min. */
#include <math.h>
#include "optim/rate.h"

static double cosine_at(const struct conf *c, double base, double t, double span)
{
    double end = c->train.learning_rate_end;
    return end + (base - end) * (1 + cos(M_PI * (t < span ? t / span : 1))) / 2;
}

const struct rate_kind rate_cosine = {
    "cosine", "half a cosine from train.learning_rate to train.learning_rate_end (torch's CosineAnnealingLR)",
    cosine_at};
