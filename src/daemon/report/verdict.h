/* What took much longer than planned, and why, likely: a layer, or a whole stage.
 *
 * Pure: rank 0 calls it with what the first steps of a run cost, tests with made-up costs. */
#ifndef DAEMON_REPORT_VERDICT_H
#define DAEMON_REPORT_VERDICT_H
#include "exec/costs.h"
#include "plan/cost.h"
#include "plan/plan.h"

enum { VERDICT_TIMES = 3, VERDICT_LINES = 3 };            /* that often its prediction is much; so many are named */
struct verdict_request {
    const struct plan *plan;
    const struct cost *planned, *measured;                /* measured: one size, its full micro-batch */
    const double *x;                                      /* the numbers that measured was made of (exec/costs.h) */
    bool estimated;                                       /* planned is no profile */
};
/* Lines for people, none if all is well. With estimates layers are compared among each other, because nobody knows the
 * machine's speed: one counts that is that much slower than half of the work. A whole stage is compared with its plan.
 */
void verdict_kernels(const struct verdict_request *q, struct text *out);
/* Where only stages were timed: seconds a step. */
void verdict_stage(int stage, double planned, double measured, bool estimated, struct text *out);

/* A layer or stage that is late. */
struct late {
    const char *name; int stage;                          /* name NULL: the stage */
    double ns, planned_ns;                                /* of a micro-batch; a stage: of a step */
    struct strain met;                                    /* core 0: unknown */
    /* what the backend says of its kernel (struct group); NULL: nothing */
    const char *slow;
    bool estimated;
};
void likely_cause(const struct late *l, struct text *out);
#endif
