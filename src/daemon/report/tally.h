/* The figures of a run as Prometheus reads them: text format 0.0.4 (mpstaged(8), MONITORING). Counters begin at 0 with
 * the process. Rank 0's loop thread, but for tally_heard. */
#ifndef DAEMON_REPORT_TALLY_H
#define DAEMON_REPORT_TALLY_H
#include "daemon/report/metrics.h"

struct tally;
/* steps: the number of the last step that is planned */
struct tally *tally_new(const struct job *j, uint64_t steps);
void tally_step(struct tally *t, const struct result *r, const struct sums *s);
void tally_evaluation(struct tally *t, const struct sums *s);
/* A checkpoint of that step was committed, or could not be written; ns: how long that took. */
void tally_checkpoint(struct tally *t, bool committed, uint64_t step, uint64_t ns);
/* The run goes on behind that step, of a checkpoint; restarts: how often that has happened to it so far. */
void tally_resumed(struct tally *t, uint64_t step, uint64_t restarts);
/* The run has gone back to the checkpoint of that step. */
void tally_rollback(struct tally *t, uint64_t step);
void tally_nonfinite(struct tally *t);                    /* a step was discarded: a number was not finite */
void tally_damaged(struct tally *t, uint64_t n);          /* a step ran again: so many tensors came damaged */
/* A sign of life of a rank; when: clock_ns. Any thread. A step's reports are signs of life, too. */
void tally_heard(struct tally *t, int rank, uint64_t when);
uint64_t tally_steps(const struct tally *t);              /* steps and evaluations that this process has done */
void tally_page(const struct tally *t, struct text *page);
void tally_free(struct tally *t);
#endif
