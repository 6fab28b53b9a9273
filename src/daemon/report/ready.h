/* What a job is making ready before its first step, or what a mode without a run computes, as a progress line for
 * whoever watches, with the time that it has taken; where nobody does, a note after two seconds and then each half
 * minute: a thread of its own, because the one that works may not come back for minutes. Rank 0. */
#ifndef DAEMON_REPORT_READY_H
#define DAEMON_REPORT_READY_H
#include "daemon/report/screen.h"
struct ready;
/* The line comes not before delay_s. NULL: there is no thread for it. */
struct ready *ready_begin(const struct screen *s, unsigned delay_s);
void ready_now(struct ready *r, const char *doing);       /* a constant text; r may be NULL, like below */
void ready_count(struct ready *r, int done, int all);      /* of what goes on: plans */
void ready_end(struct ready *r);                          /* the line goes */
#endif
