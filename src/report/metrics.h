/* RUN/metrics.jsonl: one JSON object a line (mpstaged(8), FILES). Rank 0's loop thread. Nothing is allocated after the
 * first lines.
 *
 * This folder: what a run writes and says of its steps: metrics, TensorBoard, Prometheus, progress, traces,
 * predictions, plan accuracy, slow layers; and the names of its files (rundir.c, output_paths.c). All on rank 0. See
 * docs/design/report.md. */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H
#include <jansson.h>
#include "ckpt/checkpoint.h"
#include "report/result.h"
#include "report/scores.h"

struct metrics;
/* plan: hash of the plan set; from: NULL, or the checkpoint that the run goes on from */
struct metrics_head { const struct job *job; const char *numerics, *plan; const struct ckpt *from; };
/* Goes on with the file that is there: rundir_make has removed one that is nothing to go on with. 73 */
int metrics_open(int dirfd, const char *dir, const struct metrics_head *h, struct metrics **out, struct err *e);
int metrics_step(struct metrics *m, const struct result *r, struct err *e);
int metrics_evaluation(struct metrics *m, uint64_t step, uint64_t epoch, const struct sums *s, struct err *e);
/* The event of a step that ran again because something came damaged (report.damaged). */
int metrics_rerun(struct metrics *m, const struct result *r, struct err *e);
/* The event of a step that is skipped, the n-th in a row. */
int metrics_skip(struct metrics *m, const struct result *r, uint64_t n, struct err *e);
/* The run went back because of what was not finite in that step (report.nonfinite): to the checkpoint of step `to`, for
 * the times-th time, and goes on with the sample at that position. */
struct rollback { uint64_t step, to, position, times; int what; };
int metrics_rollback(struct metrics *m, const struct rollback *b, struct err *e);
struct done { uint64_t steps, samples; const char *reason, *hash; };   /* hash NULL: no weights were written */
int metrics_event(struct metrics *m, json_t *o, struct err *e);        /* writes o as a line, and frees it */
int metrics_done(struct metrics *m, const struct done *d, struct err *e);
int metrics_failed(struct metrics *m, int code, const char *text, struct err *e);
int metrics_fd(const struct metrics *m);                  /* to sync the file */
void metrics_close(struct metrics *m);
#endif
