/* The confusion matrix of an evaluation (train.confusion): for each class how many of its samples were classified as
 * which. Written to the run directory after each evaluation: confusion.csv and confusion.png. Rank 0; the executor's
 * thread. */
#ifndef REPORT_CONFUSION_H
#define REPORT_CONFUSION_H
#include "report/rundir.h"
#include "job/job.h"

struct confusion;
/* 78 unless train.confusion is off, or the network classifies (one output per class, and a class or a one-hot vector as
 * target) and there are test samples. */
int confusion_check(const struct job *j, struct err *e);
struct confusion *confusion_new(const struct job *j, const struct rundir *dir);
/* Takes the outputs of n test samples, beginning with number `first`. 0 begins an evaluation. The last sample ends it:
 * this writes the files and logs the classes with the lowest accuracy. 65, 66, 73, 74. */
int confusion_rows(struct confusion *c, const float *x, int n, uint64_t first, struct err *e);
void confusion_free(struct confusion *c);                 /* c may be NULL */

/* Prints the counts as a table for spreadsheets: a row for each class, with its samples, its accuracy, and the counts
 * of each predicted class. name: of n classes; NULL: numbers. */
void confusion_csv(const uint64_t *count, int64_t n, const char *const *name, struct text *out);
/* The same as a PNG picture, one row per class; larger shares are darker. confusion_png.c. */
int confusion_png(const uint64_t *count, int64_t n, const char *const *name, struct text *out, struct err *e);
#endif
