/* The metrics of a run for Prometheus: text format 0.0.4 (mpstaged(8), MONITORING). Counters begin at 0 with the
 * process. Rank 0's scheduler thread, except prometheus_seen. */
#ifndef REPORT_PROMETHEUS_H
#define REPORT_PROMETHEUS_H
#include "report/metrics.h"

struct prometheus;
/* steps: number of the last planned step */
struct prometheus *prometheus_new(const struct job *j, uint64_t steps);
void prometheus_step(struct prometheus *t, const struct result *r, const struct sums *s);
void prometheus_evaluation(struct prometheus *t, const struct sums *s);
/* A checkpoint of that step was committed, or writing it failed; ns: the duration. */
void prometheus_checkpoint(struct prometheus *t, bool committed, uint64_t step, uint64_t ns);
/* The run continues after the checkpoint of that step; restarts: how often it has been resumed. */
void prometheus_resumed(struct prometheus *t, uint64_t step, uint64_t restarts);
/* The run has returned to the checkpoint of that step. */
void prometheus_rollback(struct prometheus *t, uint64_t step);
void prometheus_nonfinite(struct prometheus *t);          /* a step was discarded: a number was not finite */
void prometheus_damaged(struct prometheus *t, uint64_t n); /* a step ran again: n tensors arrived corrupted */
/* A heartbeat of a rank; when: clock_ns. Any thread. The reports of a step also count as heartbeats. */
void prometheus_seen(struct prometheus *t, int rank, uint64_t when);
uint64_t prometheus_steps(const struct prometheus *t);    /* steps and evaluations of this process */
void prometheus_page(const struct prometheus *t, struct text *page);
void prometheus_free(struct prometheus *t);
#endif
