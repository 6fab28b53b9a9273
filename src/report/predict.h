/* The file of a prediction (run.predict): a row for each test sample, in their order, as CSV, JSON lines or NumPy's
 * array. It gets its name when all rows are on disk. Rank 0; the executor's thread.
 *
 * Of a network that tells classes apart (its loss is a cross-entropy) a row has the sample, its class, the following
 * ones of the first five, and the probabilities of all; NumPy's array has these alone. Otherwise, or with
 * run.predict_tensor, it has the sample and the tensor's values. Of volumes it may be a folder: label_maps.h. */
#ifndef REPORT_PREDICT_H
#define REPORT_PREDICT_H
#include <stdatomic.h>
#include "base/out.h"
#include "job/job.h"

struct predict;
/* at: borrowed until the end; stop: a word that ends writing (75). 73, 74: there is none. */
int predict_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct predict **out,
                 struct err *e);
/* The values of n samples, the first of which is number `first`; they come in order. 74, 75 */
int predict_rows(struct predict *p, const float *x, int n, uint64_t first, struct err *e);
bool predict_complete(const struct predict *p);           /* are all rows there? */
/* Then: 73, 74 */
int predict_commit(struct predict *p, struct err *e);
uint64_t predict_nonfinite(const struct predict *p);      /* samples so far with a value that is not finite */
void predict_free(struct predict *p);                     /* without commit nothing is left; p may be NULL */
#endif
