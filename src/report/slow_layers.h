/* What took much longer than planned, a layer or a whole stage, and the likely reason.
 *
 * Pure: rank 0 calls it with what the first steps of a run cost, tests with made-up costs. */
#ifndef REPORT_SLOW_LAYERS_H
#define REPORT_SLOW_LAYERS_H
#include "exec/costs.h"
#include "plan/cost.h"
#include "plan/plan.h"

enum { SLOW_LAYERS_TIMES = 3, SLOW_LAYERS_LINES = 3 };    /* times its prediction: late; how many are named */
struct slow_layers_request {
    const struct plan *plan;
    const struct cost *planned, *measured;                /* measured: one size, its full micro-batch */
    const double *x;                                      /* the numbers that `measured` was made of (exec/costs.h) */
    bool estimated;                                       /* planned was not measured */
};
/* Adds lines for people, none if all is well. Estimates do not know the machine's speed, so then a layer is late if it
 * is that much slower than half of the work is. A whole stage is compared with its plan. */
void slow_layers_kernels(const struct slow_layers_request *q, struct text *out);
/* The same if only stages were timed, in seconds a step. */
void slow_layers_stage(int stage, double planned, double measured, bool estimated, struct text *out);
/* A rank that waits for its samples, in seconds of a step, or reads them itself where it has no workers. */
void slow_layers_load(int rank, double load, double step, int workers, struct text *out);

/* A layer or stage that is late. */
struct late {
    const char *name; int stage;                          /* name NULL: the stage */
    double ns, planned_ns;                                /* of a micro-batch; of a stage, of a step */
    struct pressure met;                                  /* core 0: unknown */
    /* why the backend calls its kernel slow (struct group); NULL: no reason */
    const char *slow;
    bool estimated;
};
void likely_cause(const struct late *l, struct text *out);
#endif
