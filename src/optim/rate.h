/* Schedules of the learning rate: what each step's rate is, as a pure function of configuration and step.
 *
 * Who may use it: the daemon's course. Each schedule is one file rate_NAME.c and its place in RATES. Warm-up, and
 * whether time is counted in steps or epochs, is common to all of them. */
#ifndef OPTIM_RATE_H
#define OPTIM_RATE_H
#include "conf/conf.h"

struct rate_kind {
    const char *name, *text;                             /* text: for the manual */
    /* The rate at time t of 0..span - 1, counted from the end of the warm-up, in units of train.schedule_by; base: the
     * rate that the schedule begins with. */
    double (*at)(const struct conf *c, double base, double t, double span);
};
extern const struct rate_kind *const rate_list[];        /* NULL-terminated, order of RATES */

struct rate_run {
    const struct conf *conf;
    uint64_t steps, samples;                             /* of the whole run, of an epoch; 0 samples: unknown */
    bool wrap;                                           /* steps run over the end of an epoch */
};
/* Learning rate of a step (from 1) where `base` stands in train.learning_rate's place. */
double rate_at(const struct rate_run *r, double base, uint64_t step);
bool rate_warms(const struct rate_run *r, uint64_t step);   /* the step (from 1) is one of the warm-up */

#endif
