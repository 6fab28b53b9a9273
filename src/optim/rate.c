/* Warm-up, time in steps or epochs, and the table of schedules. */
#include <assert.h>
#include <string.h>
#include "optim/rate.h"

#define RATE(x) extern const struct rate_kind rate_##x;
#include "registry.inc"
#define RATE(x) &rate_##x,
const struct rate_kind *const rate_list[] = {
#include "registry.inc"
    NULL
};

/* Time of a step, of the end of the run, and of the end of the warm-up, in units of train.schedule_by. */
struct rate_span { uint64_t t, all, warm; };

static struct rate_span span_of(const struct rate_run *r, struct rate_time at)
{
    const struct conf *c = r->conf;
    if (c->train.schedule_by == SCHEDULE_BY_EPOCH)
        return (struct rate_span){at.epoch, r->epochs, (uint64_t)c->train.warmup_epochs};
    return (struct rate_span){at.step - 1, r->steps, c->train.warmup_epochs ?
                              r->warm : (uint64_t)c->train.warmup_steps};
}

bool rate_warms(const struct rate_run *r, struct rate_time at)
{
    struct rate_span s = span_of(r, at);
    return s.t < s.warm;
}

double rate_at(const struct rate_run *r, double base, struct rate_time at)
{
    const struct conf *c = r->conf;
    struct rate_span s = span_of(r, at);
    /* torch.optim.lr_scheduler.LinearLR(start_factor=warmup_factor, total_iters=warm), then the schedule */
    if (s.t < s.warm)
        return base * (c->train.warmup_factor + (1 - c->train.warmup_factor) * (double)s.t / (double)s.warm);
    const struct rate_kind *k = rate_list[c->train.schedule - 1];
    return k->at(c, base, (double)(s.t - s.warm), s.all > s.warm ? (double)(s.all - s.warm) : 1);
}
