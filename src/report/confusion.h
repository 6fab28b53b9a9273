/* How an evaluation told classes apart (train.confusion): for each class how many of its samples were taken for which.
 * In the run directory, after each evaluation: confusion.csv and confusion.png. Rank 0; the executor's thread. */
#ifndef REPORT_CONFUSION_H
#define REPORT_CONFUSION_H
#include "report/rundir.h"
#include "job/job.h"

struct confusion;
/* 78 unless train.confusion is off, or the network tells classes apart: one output a class, and a class or a one-hot
 * vector as target; and there are test samples. */
int confusion_check(const struct job *j, struct err *e);
struct confusion *confusion_new(const struct job *j, const struct rundir *dir);
/* The outputs of n test samples, the first of which is number `first`; 0 begins an evaluation, and the last one ends
 * it: the files are written and the log names the classes that were told worst. 65, 66, 73, 74 */
int confusion_rows(struct confusion *c, const float *x, int n, uint64_t first, struct err *e);
void confusion_free(struct confusion *c);                 /* c may be NULL */

/* The counts as a table for spreadsheets: a row for each class with its samples, its accuracy, and what they were taken
 * for. name: of n classes, NULL: numbers. */
void confusion_csv(const uint64_t *count, int64_t n, const char *const *name, struct text *out);
/* The same as a picture, a row for each class, the darker the larger its share: PNG. confusion_png.c */
int confusion_png(const uint64_t *count, int64_t n, const char *const *name, struct text *out, struct err *e);
#endif
