/* The file of a prediction (run.predict): a row for each test sample, in order, as CSV, JSON lines or a NumPy array. It
 * gets its name when all rows are on disk. Rank 0; the executor's thread.
 *
 * For a classifier (its loss is a cross-entropy) a row has the sample, its class, the next classes of the top five, and
 * all probabilities; a NumPy array has only these. Otherwise, or with run.predict_tensor, a row has the sample and the
 * tensor's values. Predictions of volumes may be a folder: label_maps.h. */
#ifndef REPORT_PREDICT_H
#define REPORT_PREDICT_H
#include <stdatomic.h>
#include "base/out.h"
#include "job/job.h"

struct predict;
/* at: borrowed until the end; stop: nonzero ends writing (75). 73, 74: no file was opened. */
int predict_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct predict **out,
                 struct err *e);
/* Takes the values of n samples, beginning with number `first`; samples come in order. 74, 75 */
int predict_rows(struct predict *p, const float *x, int n, uint64_t first, struct err *e);
bool predict_complete(const struct predict *p);           /* whether all rows have come */
/* After all rows: 73, 74 */
int predict_commit(struct predict *p, struct err *e);
uint64_t predict_nonfinite(const struct predict *p);      /* samples so far with a value that is not finite */
void predict_free(struct predict *p);                     /* without commit removes the file; p may be NULL */
#endif
