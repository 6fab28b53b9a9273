/* Compares the plan with the run, stage by stage: measured times and the simulator's. A plan without a profile is based
 * on estimates; the table at the end is then predicted with the costs of the first steps.
 *
 * Rank 0's scheduler thread. */
#ifndef REPORT_PLAN_ACCURACY_H
#define REPORT_PLAN_ACCURACY_H
#include <jansson.h>
#include "report/metrics.h"

struct plan_accuracy;
struct plan_accuracy *plan_accuracy_new(const struct job *j, bool one_process);
/* Takes a step of any kind. Does not count evaluations, the first training step (it warms up) and short last
 * batches. */
void plan_accuracy_step(struct plan_accuracy *g, const struct result *r);
/* After a pause: the next step is not counted, because ranks waited for its order. */
void plan_accuracy_pause(struct plan_accuracy *g);
/* Takes the costs of the first steps on all ranks (train/warmup_profile.h). */
void plan_accuracy_costs(struct plan_accuracy *g, const double *x);
/* Called after plan_accuracy_step and plan_accuracy_costs: adds lines about layers or stages that take much longer than
 * planned (report/slow_layers.h), once in a run. */
void plan_accuracy_slow(struct plan_accuracy *g, struct text *out);
/* After the last step, before text and json: simulates the plan again with the measured costs. */
void plan_accuracy_end(struct plan_accuracy *g);
/* A rank's planned busy time in a full step, without waits, ns; 0 if the plan is based on estimates. */
double plan_accuracy_planned_ns(const struct plan_accuracy *g, int rank);
bool plan_accuracy_any(const struct plan_accuracy *g);    /* whether a step was counted */
void plan_accuracy_text(const struct plan_accuracy *g, struct text *out); /* the table at the end of a run */
json_t *plan_accuracy_json(const struct plan_accuracy *g); /* the event "account" of metrics.jsonl */
void plan_accuracy_free(struct plan_accuracy *g);
#endif
