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
    uint64_t steps, epochs;                              /* of the whole run; epochs: those in which steps begin */
    uint64_t warm;                                       /* steps that begin within train.warmup_epochs */
};
/* step: from 1; epoch: in which it begins, from 0 */
struct rate_time { uint64_t step, epoch; };
/* Learning rate of a step where `base` stands in train.learning_rate's place. */
double rate_at(const struct rate_run *r, double base, struct rate_time at);
bool rate_warms(const struct rate_run *r, struct rate_time at);   /* the step is one of the warm-up */

#endif
