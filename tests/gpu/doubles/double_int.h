/* The inside of the double of cudart: shared by cudart_streams.c and cudart_memory.c. Nobody else. */
#ifndef DOUBLE_INT_H
#define DOUBLE_INT_H
#include <pthread.h>
#include "double.h"

/* One lock for everything; changed: an operation of a stream is done, an event is reached. */
extern pthread_mutex_t double_lock;
extern pthread_cond_t double_changed;
extern bool double_lost;                                 /* the device is gone; under double_lock */
/* The device is there, and one more operation is enqueued if so; otherwise the error of a device that is gone. */
cudaError_t double_alive(bool operation);
/* Notes a failure for cudaGetLastError. */
cudaError_t double_result(cudaError_t status);
/* One more thing is made that costs time and memory: double_makes. */
void double_made(void);
/* Does this thread record in a mode that forbids calls which might wait? */
bool double_strict(void);
/* With the lock, which it gives up meanwhile: waits for what is enqueued on the streams of that device. */
void double_streams_drain(int device);
/* Zeros there. */
void double_clear(void *at, size_t bytes);
enum cudaMemoryType double_memory(const void *at);
#endif
