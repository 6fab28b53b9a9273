/* Compares the plan with the run, stage by stage: measured times and the simulator's. A plan without a profile is based
 * on estimates; the table at the end is then predicted with the costs of the first steps. The reporter
 * "plan_accuracy". */
#ifndef REPORT_PLAN_ACCURACY_H
#define REPORT_PLAN_ACCURACY_H
#include "job/job.h"

struct plan_accuracy;
/* A rank's planned busy time in a full step, without waits, ns; 0 if the plan is based on estimates. */
double plan_accuracy_planned_ns(const struct plan_accuracy *g, int rank);
#endif
