/* What a run says of its samples: at the start how many there are, of which classes, and what is odd about their files;
 * later how many were damaged and skipped. Rank 0. */
#ifndef REPORT_DATA_REPORT_H
#define REPORT_DATA_REPORT_H
#include "report/metrics.h"
#include "job/job.h"

/* Logs a line for each part with classes of its own, and before them its warning. */
void data_report_hello(const struct job *j);
/* Adds a line, "warning: ..." or "note: ...", for each thing that a run should say of its files. */
void data_report_warnings(const struct job *j, struct text *t);

struct samples { uint64_t skipped, told, step; char first[sizeof ((struct report *)0)->text]; };
/* Takes what ranks report, and says it the first time, whenever it has doubled, and at the end. */
int data_report_step(struct samples *s, struct metrics *m, const struct result *r, const struct job *j, struct err *e);
int data_report_end(struct samples *s, struct metrics *m, struct err *e);
#endif
