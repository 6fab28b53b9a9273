/* A progress line, with elapsed time, before the first step or in a mode without a run. If nobody watches, it is a note
 * after two seconds and then every half minute. It has its own thread, because the working thread may not return for
 * minutes. Rank 0. */
#ifndef REPORT_SETUP_PROGRESS_H
#define REPORT_SETUP_PROGRESS_H
#include "cluster/terminal.h"
struct ready;
/* The line appears after delay_s. The progress thread calls tick every second until the end; NULL: nothing to call.
 * Returns NULL if no thread could be started. */
struct ready *setup_progress_begin(const struct terminal *s, unsigned delay_s, void (*tick)(void));
void setup_progress_now(struct ready *r, const char *doing); /* doing: a constant text; r may be NULL, also below */
void setup_progress_count(struct ready *r, int done, int all); /* done: plans made, of all */
void setup_progress_end(struct ready *r);                 /* erases the line */
#endif
