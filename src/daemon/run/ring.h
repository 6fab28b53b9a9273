/* A bounded queue of equal messages between two threads, allocated once. Any thread may put or get. */
#ifndef DAEMON_RUN_RING_H
#define DAEMON_RUN_RING_H
#include <stdbool.h>
#include <stddef.h>
struct ring;
struct ring *ring_new(int slots, size_t bytes);
bool ring_put(struct ring *r, const void *message);       /* copies; false: the queue is full */
bool ring_get(struct ring *r, void *message, int wait_ms); /* false: still empty after wait_ms */
/* Takes back the newest message, so that what both ends take is never mixed. False: there is none. */
bool ring_unput(struct ring *r, void *message);
void ring_free(struct ring *r);
#endif
