/* A progress line for what goes on before the first step, or in a mode without a run, with the time that it has taken.
 * If nobody watches, it is a note after two seconds and then every half minute. It has a thread of its own, because the
 * one that works may not return for minutes. Rank 0. */
#ifndef REPORT_SETUP_PROGRESS_H
#define REPORT_SETUP_PROGRESS_H
#include "cluster/terminal.h"
struct ready;
/* The line appears after delay_s. tick is called every second until the end, on that thread; NULL: nothing is. NULL: no
 * thread could be started. */
struct ready *setup_progress_begin(const struct terminal *s, unsigned delay_s, void (*tick)(void));
void setup_progress_now(struct ready *r, const char *doing); /* doing: a constant text; r may be NULL, as below */
void setup_progress_count(struct ready *r, int done, int all); /* how many of how many plans are made */
void setup_progress_end(struct ready *r);                 /* erases the line */
#endif
