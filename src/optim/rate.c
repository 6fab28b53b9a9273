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

static const struct rate_kind *find(const char *name)
{
    int i = 0;
    while (rate_list[i] && strcmp(rate_list[i]->name, name) != 0) i++;
    assert(rate_list[i]);                                /* the option's words are this list */
    return rate_list[i];
}

/* The epoch, from 0, in which a step (from 0) begins, if no step was ever left out. */
static uint64_t epoch_of(const struct rate_run *r, uint64_t step)
{
    uint64_t batch = (uint64_t)r->conf->train.batch_size, n = r->samples;
    if (!n) return 0;
    return r->wrap ? step * batch / n : step / ((n + batch - 1) / batch);
}

/* The first step (from 0) that begins in this epoch or later. */
static uint64_t first_of(const struct rate_run *r, uint64_t epoch)
{
    uint64_t batch = (uint64_t)r->conf->train.batch_size, n = r->samples;
    return r->wrap ? (epoch * n + batch - 1) / batch : epoch * ((n + batch - 1) / batch);
}

/* Time of a step, the time at which the run ends, and that at which the warm-up does, in units of train.schedule_by. */
struct span { uint64_t t, all, warm; };

static struct span span_of(const struct rate_run *r, uint64_t step)
{
    const struct conf *c = r->conf;
    struct span s = {step - 1, r->steps, (uint64_t)c->train.warmup_steps};
    if (c->train.schedule_by && !strcmp(c->train.schedule_by, "epoch")) {
        s.t = epoch_of(r, s.t);
        s.all = r->steps ? epoch_of(r, r->steps - 1) + 1 : 0;
        s.warm = (uint64_t)c->train.warmup_epochs;
    } else if (c->train.warmup_epochs) {
        s.warm = first_of(r, (uint64_t)c->train.warmup_epochs);
    }
    return s;
}

bool rate_warms(const struct rate_run *r, uint64_t step)
{
    struct span s = span_of(r, step);
    return s.t < s.warm;
}

double rate_at(const struct rate_run *r, double base, uint64_t step)
{
    const struct conf *c = r->conf;
    struct span s = span_of(r, step);
    /* torch.optim.lr_scheduler.LinearLR(start_factor=warmup_factor, total_iters=warm), then the schedule */
    if (s.t < s.warm)
        return base * (c->train.warmup_factor + (1 - c->train.warmup_factor) * (double)s.t / (double)s.warm);
    return find(c->train.schedule)->at(c, base, (double)(s.t - s.warm), s.all > s.warm ? (double)(s.all - s.warm) : 1);
}
