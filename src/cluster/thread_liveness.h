/* Rank 0's scheduler as others see it: whether its thread comes by, and what it waits for in a file system. It writes
 * metrics, log and event files itself, and when it stands still, no rank gets an order any more.
 *
 * One per process. liveness_look: any thread; the others count on the scheduler's thread alone, and do nothing on any
 * other, so who writes files need not know on which he is. */
#ifndef CLUSTER_THREAD_LIVENESS_H
#define CLUSTER_THREAD_LIVENESS_H
#include <stdbool.h>
#include <stdint.h>

void liveness_begin(void);                                /* the caller is the scheduler's thread from now on */
void liveness_end(void);                                  /* it has ended; any thread */
void liveness_turn(void);                                 /* it comes by; several times a second */
/* It is about to read or write that, a constant text such as "metrics.jsonl"; NULL: no more. Returns what was said
 * before, for the caller to say again. */
const char *liveness_wait_file(const char *file);
/* False: there is no scheduler. count: how often it has come by or said something; file: as above. */
bool liveness_look(uint64_t *count, const char **file);
#endif
