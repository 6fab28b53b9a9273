/* Compares the plan with the run: what steps took beside what the simulator said, stage by stage. A plan without a
 * profile rests on estimates, so the account at the end is predicted with what the first steps cost.
 *
 * Rank 0's loop thread. */
#ifndef REPORT_PLAN_ACCURACY_H
#define REPORT_PLAN_ACCURACY_H
#include <jansson.h>
#include "report/metrics.h"

struct plan_accuracy;
struct plan_accuracy *plan_accuracy_new(const struct job *j, bool one_process);
/* Takes a step of any kind. Not counted are evaluations, the first training step (it warms up) and short last
 * batches. */
void plan_accuracy_step(struct plan_accuracy *g, const struct result *r);
/* The run has paused, so the next step is not counted: ranks have waited for its order for long. */
void plan_accuracy_pause(struct plan_accuracy *g);
/* What the first steps cost on all ranks (train/warmup_profile.h). */
void plan_accuracy_costs(struct plan_accuracy *g, const double *x);
/* Called after both of these: adds lines about what takes much longer than planned (report/slow_layers.h), once
 * in a run. */
void plan_accuracy_slow(struct plan_accuracy *g, struct text *out);
/* After the last step, before text and json: simulates the plan again with what was measured. */
void plan_accuracy_end(struct plan_accuracy *g);
/* What the plan says a rank is busy in a full step, without waits, ns; 0 where it rests on estimates. */
double plan_accuracy_planned_ns(const struct plan_accuracy *g, int rank);
bool plan_accuracy_any(const struct plan_accuracy *g);    /* was there a step that counts? */
void plan_accuracy_text(const struct plan_accuracy *g, struct text *out); /* the table at the end of a run */
json_t *plan_accuracy_json(const struct plan_accuracy *g); /* the event "account" of metrics.jsonl */
void plan_accuracy_free(struct plan_accuracy *g);
#endif
