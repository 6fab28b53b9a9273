/* What a job is making ready before its first step, as a progress line for whoever watches, with the time that it has
 * taken: a thread of its own, because the one that works may not come back for minutes. Rank 0. */
#ifndef DAEMON_READY_H
#define DAEMON_READY_H
#include "daemon/screen.h"
struct ready;
struct ready *ready_begin(const struct screen *s);        /* NULL: nobody watches */
void ready_now(struct ready *r, const char *doing);       /* a constant text; r may be NULL, like below */
void ready_end(struct ready *r);                          /* the line goes */
#endif
