/* Reports the samples of a run at its start: how many, which classes, and oddities of their files. Rank 0. */
#ifndef REPORT_DATA_REPORT_H
#define REPORT_DATA_REPORT_H
#include "job/job.h"

/* Logs the warnings, then a line for each part that has classes. */
void data_report_hello(const struct job *j);
/* Adds a line, "warning: ..." or "note: ...", for each oddity of the files. */
void data_report_warnings(const struct job *j, struct text *t);
#endif
