/* RUN/metrics.jsonl: one JSON object per line (mpstaged(8), FILES). Rank 0's scheduler thread. Allocates nothing after
 * the first lines.
 *
 * This folder: what a run writes about its steps: metrics, TensorBoard, Prometheus, progress, traces, predictions, plan
 * accuracy, slow layers; and the names of its files (rundir.c, output_paths.c). On rank 0, except trace.c and
 * warmup_costs.c, in which all ranks take part. See docs/design/report.md. */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H
#include <jansson.h>
#include "ckpt/checkpoint.h"
#include "report/result.h"
#include "report/scores.h"

struct metrics;
/* plan: hash of the plan set; from: NULL, or the checkpoint from which the run continues */
struct metrics_head { const struct job *job; const char *numerics, *plan; const struct ckpt *from; };
/* Appends to an existing file: rundir_make has removed one that must not be continued. 73 */
int metrics_open(int dirfd, const char *dir, const struct metrics_head *h, struct metrics **out, struct err *e);
int metrics_step(struct metrics *m, const struct result *r, struct err *e);
int metrics_evaluation(struct metrics *m, uint64_t step, uint64_t epoch, const struct sums *s, struct err *e);
/* The event of a step that ran again because a tensor arrived corrupted (report.damaged). */
int metrics_rerun(struct metrics *m, const struct result *r, struct err *e);
/* The event of a skipped step, the n-th in a row. */
int metrics_skip(struct metrics *m, const struct result *r, uint64_t n, struct err *e);
/* A roll-back, because a number in `step` was not finite (report.nonfinite: what). to: the checkpoint's step; times:
 * how often the run has returned to it. The run continues with the sample at `position`. */
struct rollback { uint64_t step, to, position, times; int what; };
int metrics_rollback(struct metrics *m, const struct rollback *b, struct err *e);
struct done { uint64_t steps, samples; const char *reason, *hash; };   /* hash NULL: no weights were written */
int metrics_event(struct metrics *m, json_t *o, struct err *e);        /* writes o as a line, and frees it */
int metrics_done(struct metrics *m, const struct done *d, struct err *e);
int metrics_failed(struct metrics *m, int code, const char *text, struct err *e);
int metrics_fd(const struct metrics *m);                  /* to sync the file */
void metrics_close(struct metrics *m);
#endif
