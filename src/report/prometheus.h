/* The figures of a run as Prometheus reads them: text format 0.0.4 (mpstaged(8), MONITORING). Counters begin at 0 with
 * the process. Rank 0's loop thread, but for prometheus_heard. */
#ifndef REPORT_PROMETHEUS_H
#define REPORT_PROMETHEUS_H
#include "report/metrics.h"

struct prometheus;
/* steps: the number of the last step that is planned */
struct prometheus *prometheus_new(const struct job *j, uint64_t steps);
void prometheus_step(struct prometheus *t, const struct result *r, const struct sums *s);
void prometheus_evaluation(struct prometheus *t, const struct sums *s);
/* A checkpoint of that step was committed, or could not be written; ns: how long that took. */
void prometheus_checkpoint(struct prometheus *t, bool committed, uint64_t step, uint64_t ns);
/* The run goes on behind that step, of a checkpoint; restarts: how often that has happened to it so far. */
void prometheus_resumed(struct prometheus *t, uint64_t step, uint64_t restarts);
/* The run has gone back to the checkpoint of that step. */
void prometheus_rollback(struct prometheus *t, uint64_t step);
void prometheus_nonfinite(struct prometheus *t);          /* a step was discarded: a number was not finite */
void prometheus_damaged(struct prometheus *t, uint64_t n); /* a step ran again: so many tensors came damaged */
/* A sign of life of a rank; when: clock_ns. Any thread. A step's reports are signs of life, too. */
void prometheus_heard(struct prometheus *t, int rank, uint64_t when);
uint64_t prometheus_steps(const struct prometheus *t);    /* steps and evaluations that this process has done */
void prometheus_page(const struct prometheus *t, struct text *page);
void prometheus_free(struct prometheus *t);
#endif
