/* Shared by the tests of transports for GPUs: ranks as threads over the doubles of CUDA and NCCL, each with its own
 * stream, and tests that tolerate a busy machine. Uses Check's assertions. */
#ifndef TESTS_DEVICE_RIG_H
#define TESTS_DEVICE_RIG_H
#include <check.h>
#include "gpu/doubles/double.h"
#include "transport/tp.h"

enum { MAX_RANKS = 4 };
enum kind { STAGED, NCCL, KINDS };
struct member {
    struct tp *tp;
    cudaStream_t stream;
    const struct tp_use *use; int n_use;
    const struct tp_check *check;
    int drop;                                            /* stream whose waits are lost, -1: none */
    int rank, size;
    long wrong;                                          /* number of wrong values */
    char text[1100];
    struct err e;
    int (*run)(struct member *m);
};
/* Parameters for opening transports: the GPU and host of each rank, and the fields of struct tp_request. */
extern int gpu_of[MAX_RANKS], host_of[MAX_RANKS], max_ctas;
extern uint64_t patience_ns, connect_ns;

void check_cuda(cudaError_t status);
cudaStream_t stream_new(void);
/* Device memory that is freed at the end, because a free waits for everything. */
void *memory_take(size_t bytes);
void memory_keep(void *p);
void memory_give_all(void);

int device_open(enum kind kind, struct tp *inner, struct tp **out, struct err *e);
/* Runs all members; afterwards m[i].text describes the failure. */
void members_run(enum kind kind, int n, struct member *m);
void members_close(int n, struct member *m);
void two(enum kind kind, int (*run)(struct member *), struct member *m);   /* two members: rank 0 sends to rank 1 */
int come_to(struct tp *t, struct tp_req *r, struct err *e);   /* waits until the stream may continue after the post */
int settle(struct member *m);                            /* waits until all posts and the stream are done */
int one_transfer(struct member *m, struct tp_tag tag, void *p);

extern uint64_t patience_s;                              /* of the running try */
extern char said[1200];
/* Returns `said` with that text, or NULL. */
const char *wrong_if(bool wrong, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Runs a check in its own process, with a patience of 1, 2, 4 and 8 s until it passes. A real failure fails with any
 * patience; a rank that the machine delayed is only slow. */
void patiently(const char *(*check)(int), int i);
/* The same if the test cannot set the patience: for a second and a half, a rank that lost its peer waits for that
 * peer's own error. A machine may stall that long once, but not twice. */
void twice(const char *(*check)(int), int i);

#endif
