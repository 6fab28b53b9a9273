/* Learning-rate schedules: each step's rate as a pure function of configuration and step.
 *
 * For the sequencer (train/sequencer.c). Each schedule is one file rate_NAME.c and an entry in RATES. All share the
 * warm-up and the choice of steps or epochs as the unit of time. */
#ifndef OPTIM_RATE_H
#define OPTIM_RATE_H
#include "conf/conf.h"

struct rate_kind {
    const char *name, *text;                             /* text: for the manual */
    /* The rate at time t of 0..span - 1, counted from the end of the warm-up, in units of train.schedule_by; base: the
     * schedule's first rate. */
    double (*at)(const struct conf *c, double base, double t, double span);
};
extern const struct rate_kind *const rate_list[];        /* NULL-terminated, order of RATES */

struct rate_run {
    const struct conf *conf;
    uint64_t steps, epochs;                              /* of the whole run; epochs: those that begin a step */
    uint64_t warm;                                       /* steps that begin in the first train.warmup_epochs */
};
/* step: from 1; epoch: of the step's first sample, from 0 */
struct rate_time { uint64_t step, epoch; };
/* Learning rate of a step, with `base` in place of train.learning_rate. */
double rate_at(const struct rate_run *r, double base, struct rate_time at);
bool rate_warms(const struct rate_run *r, struct rate_time at);   /* the step belongs to the warm-up */

#endif
