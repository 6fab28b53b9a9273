/* Publishes the state of rank 0's scheduler: whether its thread still runs its loop, and which file it waits for. The
 * scheduler itself writes metrics, log and event files. When it does not move, no rank gets an order.
 *
 * One per process. liveness_read and liveness_end: any thread. The other functions work only on the scheduler's thread
 * and do nothing on any other, so code that writes files need not know which thread runs it. */
#ifndef CLUSTER_THREAD_LIVENESS_H
#define CLUSTER_THREAD_LIVENESS_H
#include <stdbool.h>
#include <stdint.h>

void liveness_begin(void);                                /* the caller is the scheduler's thread from now on */
void liveness_end(void);                                  /* the thread has ended; any thread */
void liveness_turn(void);                                 /* the loop runs; several times a second */
/* The thread is about to read or write that file, a constant text such as "metrics.jsonl"; NULL: it has finished.
 * Returns the previous value, which the caller restores. */
const char *liveness_wait_file(const char *file);
/* False: there is no scheduler. count: calls of liveness_turn and liveness_wait_file so far; file: as above. */
bool liveness_read(uint64_t *count, const char **file);
#endif
