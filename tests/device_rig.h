/* What the tests of transports for GPUs share: ranks as threads over the doubles of CUDA and NCCL, each with a stream
 * of its own, and tests that a busy machine cannot spoil. Uses Check's assertions. */
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
    long wrong;                                          /* values */
    char text[1100];
    struct err e;
    int (*run)(struct member *m);
};
/* What transports are opened with: the GPU and host of each rank, and as struct tp_request says. */
extern int gpu_of[MAX_RANKS], host_of[MAX_RANKS], max_ctas;
extern uint64_t patience_ns, connect_ns;

void check_cuda(cudaError_t status);
cudaStream_t stream_new(void);
/* Device memory that is given back when all is over, because a free waits for everything. */
void *memory_take(size_t bytes);
void memory_keep(void *p);
void memory_give_all(void);

int device_open(enum kind kind, struct tp *inner, struct tp **out, struct err *e);
/* Runs all members; afterwards m[i].text says what went wrong. */
void members_run(enum kind kind, int n, struct member *m);
void members_close(int n, struct member *m);
void two(enum kind kind, int (*run)(struct member *), struct member *m);   /* of which rank 0 sends to rank 1 */
int come_to(struct tp *t, struct tp_req *r, struct err *e);   /* until the stream may go on after the post */
int settle(struct member *m);                            /* until all posts and the stream are done */
int one_transfer(struct member *m, struct tp_tag tag, void *p);

extern uint64_t patience_s;                              /* of the try under way */
extern char said[1200];
/* said, with that text, or NULL */
const char *wrong_if(bool wrong, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Runs a check in a process of its own, with a patience of 1, 2, 4 and 8 s until all is well: what is wrong is wrong
 * with any patience, and a rank that the machine kept waiting is only slow. */
void patiently(const char *(*check)(int), int i);
/* The same where the patience is not ours to set: for a second and a half, a rank that lost its peer waits for that
 * peer's own error. A machine may stand still for so long once, not twice. */
void twice(const char *(*check)(int), int i);

#endif
