/* A bounded queue of messages of equal size between two threads, allocated once. Any thread may put or get. */
#ifndef CLUSTER_QUEUE_H
#define CLUSTER_QUEUE_H
#include <stdbool.h>
#include <stddef.h>
struct queue;
struct queue *queue_new(int slots, size_t bytes);
bool queue_put(struct queue *r, const void *message);     /* copies; false: the queue is full */
bool queue_get(struct queue *r, void *message, int wait_ms); /* false: still empty after wait_ms */
/* Takes the newest message, so that the two ends never take each other's messages. False: the queue is empty. */
bool queue_unput(struct queue *r, void *message);
void queue_free(struct queue *r);
#endif
