/* Finds layers or stages that took much longer than planned, and the likely reason.
 *
 * Pure: rank 0 passes the costs of a run's first steps, tests pass made-up costs. */
#ifndef REPORT_SLOW_LAYERS_H
#define REPORT_SLOW_LAYERS_H
#include "exec/costs.h"
#include "plan/cost.h"
#include "plan/plan.h"

/* TIMES: a layer is late from so many times its prediction; LINES: how many are named */
enum { SLOW_LAYERS_TIMES = 3, SLOW_LAYERS_LINES = 3 };
struct slow_layers_request {
    const struct plan *plan;
    const struct cost *planned, *measured;                /* measured: one size, the full micro-batch */
    const double *x;                                     /* the numbers from which `measured` was made (exec/costs.h) */
    bool estimated;                                       /* planned was not measured */
};
/* Adds lines for people, none if there is no problem. Estimates do not know the machine's speed. With them the limit is
 * SLOW_LAYERS_TIMES the slowdown that half of the work does not exceed. A whole stage is compared with its plan. */
void slow_layers_kernels(const struct slow_layers_request *q, struct text *out);
/* The same if only stages were timed, in seconds per step. */
void slow_layers_stage(int stage, double planned, double measured, bool estimated, struct text *out);
/* Reports a rank that waits for samples, or reads them itself if it has no workers. load: in seconds of a step. */
void slow_layers_load(int rank, double load, double step, int workers, struct text *out);

/* A layer or stage that is late. */
struct late {
    const char *name; int stage;                          /* name NULL: the stage */
    double ns, planned_ns;                                /* of a micro-batch; for a stage, of a step */
    struct pressure met;                                  /* core 0: unknown */
    /* why the backend expects its kernel to be slow (struct group); NULL: no reason */
    const char *slow;
    bool estimated;
};
void likely_cause(const struct late *l, struct text *out);
#endif
