/* What the doubles of cudart and NCCL do beyond their libraries: disorder, planted faults, and hooks for tests.
 *
 * The double of cudart has a thread for every stream, which runs what was enqueued in order; events are tickets; new
 * device memory is full of NaN. So code that forgets to wait for an event reads or sends NaN, or values of an earlier
 * micro-batch, as soon as streams run at different speeds.
 *
 * Environment, read at the first call:
 *   DOUBLE_DELAY_US=N   before each operation of a stream a random time up to N us; DOUBLE_SEED=S seeds them
 *   DOUBLE_DEVICES=N    how many GPUs there are (4); 0: none
 *   DOUBLE_OTHER=N      GPU N is of another kind than the others
 *   DOUBLE_DRIVER=V     the driver's version (13000); 0: there is no driver
 *   DOUBLE_MEMORY=N     bytes of each GPU (4 GiB); what is beyond fails
 *   DOUBLE_STREAMS=N    how many streams can be made (no limit); DOUBLE_PINNED=N: bytes of pinned memory
 *   DOUBLE_COMMS=N      the connection behind the first N cannot be made
 *   DOUBLE_VANISH=N     after N enqueued operations all calls fail: the GPU is gone
 *   DOUBLE_NCCL_CLOSE=N from transfer N on connections break; DOUBLE_NCCL_HANG=N: nothing moves any more;
 *                       DOUBLE_NCCL_SUMS_HANG=N: no sums over all ranks
 *   DOUBLE_NET=S        what NCCL says of the network between hosts (IB/0/GDRDMA)
 *   DOUBLE_NCCL_WANTS=S NAME=VALUE, separated by blanks: no communicator is made where NCCL would read another
 *                       environment
 *   DOUBLE_DROP=N       waits that are enqueued on stream N of a thread are lost, and its delays with the first; 0: the
 *                       first it made
 *   DOUBLE_RANK=R       DRIVER, STREAMS, PINNED, COMMS, VANISH, NCCL_*, MEMORY and DROP: for rank R of an mpirun
 *                       only */
#ifndef DOUBLE_H
#define DOUBLE_H
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* A number from the environment for this rank; `none` where it is not set. Settings for one rank only are none
 * elsewhere. */
long double_setting(const char *name, bool of_rank, long none);
/* From now on this thread's cudaStreamWaitEvent does nothing on the stream that it made as its number-th; -1: none is
 * lost. */
void double_drop_waits(int number);
/* Delays of streams that are made from now on. */
void double_delays(unsigned max_us, uint64_t seed);
/* Device memory of one GPU that is taken now. */
size_t double_taken(int device);
/* How often memory, streams, events and graphs were made so far. */
long double_makes(void);
/* How many recorded graphs were launched so far. */
long double_replays(void);
/* The n-th operation from now on that would be recorded fails with that error; 0: none. As with the real one,
 * cudaErrorStreamCaptureUnsupported breaks the recording off. */
void double_refuse_recorded(int n, cudaError_t with);
/* Streams that record now. */
int double_recording(void);
/* Communicators of this process that somebody still holds. */
int double_comms_left(void);
/* What the last communicator was asked to be; net "": whatever there is. */
struct double_comm { int cluster, ctas; char net[32]; };
struct double_comm double_comm_made(void);
/* What cudaLaunchHostFunc does, for a call that owns something: a GPU that is gone when its turn comes never calls fn;
 * then drop is called instead. Neither is called when this fails. */
cudaError_t double_call(cudaStream_t stream, cudaHostFn_t fn, cudaHostFn_t drop, void *data);
/* Enqueues a call with a copy of `bytes` bytes, which every replay of a recorded graph sees as they were: how
 * kernels/launch.h runs kernels. */
int host_launch(void *stream, cudaHostFn_t fn, const void *data, size_t bytes);
#ifdef __cplusplus
}
#endif
#endif
