/* Reports the samples of a run. At the start: how many, which classes, and oddities of their files. Later: how many
 * were damaged and skipped. Rank 0. */
#ifndef REPORT_DATA_REPORT_H
#define REPORT_DATA_REPORT_H
#include "report/metrics.h"
#include "job/job.h"

/* Logs the warnings, then a line for each part that has classes. */
void data_report_hello(const struct job *j);
/* Adds a line, "warning: ..." or "note: ...", for each oddity of the files. */
void data_report_warnings(const struct job *j, struct text *t);

struct samples { uint64_t skipped, reported, step; char first[sizeof ((struct report *)0)->text]; };
/* Takes what ranks report. Logs it the first time, each time the number has doubled, and at the end. */
int data_report_step(struct samples *s, struct metrics *m, const struct result *r, const struct job *j, struct err *e);
int data_report_end(struct samples *s, struct metrics *m, struct err *e);
#endif
