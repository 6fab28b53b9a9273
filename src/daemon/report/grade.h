/* Compares the plan with the run: what steps took beside what the simulator said, stage by stage. A plan without a
 * profile rests on estimates, so the account at the end is predicted with what the first steps cost.
 *
 * Rank 0's loop thread. */
#ifndef DAEMON_REPORT_GRADE_H
#define DAEMON_REPORT_GRADE_H
#include <jansson.h>
#include "daemon/report/metrics.h"

struct grade;
struct grade *grade_new(const struct job *j, bool one_process);
/* Takes a step of any kind. Not counted are evaluations, the first training step (it warms up) and short last
 * batches. */
void grade_step(struct grade *g, const struct result *r);
/* The run has paused, so the next step is not counted: ranks have waited for its order for long. */
void grade_pause(struct grade *g);
/* What the first steps cost on all ranks (daemon/run/probe.h). */
void grade_costs(struct grade *g, const double *x);
/* Called after both of these: adds lines about what takes much longer than planned (daemon/report/verdict.h), once in a
 * run. */
void grade_verdict(struct grade *g, struct text *out);
/* After the last step, before text and json: simulates the plan again with what was measured. */
void grade_end(struct grade *g);
/* What the plan says a rank is busy in a full step, without waits, ns; 0 where it rests on estimates. */
double grade_planned_ns(const struct grade *g, int rank);
bool grade_any(const struct grade *g);                    /* was there a step that counts? */
void grade_text(const struct grade *g, struct text *out); /* the table at the end of a run */
json_t *grade_json(const struct grade *g);                /* the event "account" of metrics.jsonl */
void grade_free(struct grade *g);
#endif
