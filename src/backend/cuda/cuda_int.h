/* The inside of the cuda backend, shared by be_cuda.c and cuda_*.c only.
 *
 * A kernel is made once (kernel_row.make), keyed by (group, phase, samples, train); running it enqueues library calls
 * and own kernels on the stream. Activations are channels last, in float or bfloat16 as selected. Weights, their
 * gradients and the optimizer's state are in float, except frozen weights of products in bfloat16. Weights of
 * convolutions are [out][points][in / groups]. With bfloat16 activations, convolutions and products read a bfloat16
 * copy of weights in float (be_call.packed), which is made again after every step.
 *
 * This folder: cuDNN (cuda_dnn*.c), cuBLASLt (cuda_gemm.c) and the calls of own kernels, which are in kernels/. See
 * docs/design/cuda.md. */
#ifndef BACKEND_CUDA_CUDA_INT_H
#define BACKEND_CUDA_CUDA_INT_H
#include <cuda_runtime_api.h>
#include "backend/be.h"
#include "backend/cuda/dnn.h"
#include "kernels/kernels.h"
#include "model/ops/batch_norm.h"

enum { UP_SLOTS = 8, UP_BYTES = 1 << 20 };               /* pinned pieces on their way to the device */
struct up { char *at; cudaEvent_t sent; bool busy; };

/* Loaded values on their way: pinned memory, the same size on the device, and events after which each is free again.
 * Loads of each graph input take turns on the input's own ways: two tickets may be open while the device still uses a
 * third. */
struct way { char *host, *at; cudaEvent_t sent, taken; bool busy; };
enum { WAYS = 3, LEAST_WAY = 4096 };
struct ways { struct way way[WAYS]; size_t bytes; int next; };

/* A table in device memory equal to one on the host. It never changes, so recorded calls may refer to it. */
struct mirror { const void *key; void *host, *at; size_t bytes; };

struct be {
    const struct selection *s;
    const struct graph *g;
    int unit;
    cudaStream_t stream;                                 /* where calls go */
    struct dnn *dnn;
    VEC(struct be_kernel *) kernel;
    VEC(struct be_graph *) graph;
    VEC(struct mirror) mirror;
    cudaEvent_t *mark; int n_marks;
    struct up up[UP_SLOTS]; int up_next;
    cudaStream_t copy;                                   /* loads use this stream, beside the compute stream */
    cudaStream_t mover[BE_MOVERS];                       /* cuda_move; made with pinned memory */
    VEC(cudaEvent_t) fence;
    VEC(void *) pinned;
    struct ways ways[MAX_INPUTS];                        /* of each graph input; bytes: of the largest load */
    void *sums;                                          /* k_sum_work */
    char *running; size_t running_bytes;                 /* on the host: cuda_stats builds its table here */
    unsigned *counters;                                  /* K_COUNTERS, for kernels on the stream */
    size_t taken;                                        /* bytes taken from the device */
};

struct be_kernel {
    struct be_key key;
    const struct group *k;
    const struct node *node;                             /* the group's first node */
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);
};

/* For kernel_row.make: a copy of `like`, `size` bytes long; the maker's own struct begins with be_kernel. */
void *cuda_kernel_new(const struct be_kernel *like, size_t size);
enum { CUDA_TYPES = TAKES(F32) | TAKES(BF16) };          /* kernel_row.types */
/* Adds the fastest plan of a convolution's pass to the kernel table; nothing for other groups. */
int cuda_product_tune(struct be *b, const struct be_key *key, struct text *table, struct err *e);
/* 70 if the selection reserves less workspace for this kernel. A library may use the last group.library_bytes of it. */
int cuda_kernel_workspace(const struct be *b, const struct be_kernel *k, size_t bytes, struct err *e);

/* be_ops.stats */
int cuda_stats(struct be *b, const struct be_stats *s, struct err *e);
/* 69 with CUDA's words unless status is cudaSuccess. what: "copying", "batch norm", ... */
int cuda_check(struct err *e, const char *what, int status);
/* The device copy of a host table; made when these contents are new for this key. NULL: e. */
void *cuda_mirror(struct be *b, const void *key, const void *host, size_t bytes, struct err *e);

/* cuda_memory.c. All device memory of a backend is taken by cuda_take; cuda_free gives it back. The others are entries
 * of be_ops. */
cudaError_t cuda_take(struct be *b, void **out, size_t bytes);
int cuda_event_new(cudaEvent_t *ev, struct err *e);      /* without timing */
int cuda_free_memory(struct be *b, size_t *bytes, struct err *e);
void *cuda_alloc(struct be *b, size_t bytes, struct err *e);
void cuda_free(struct be *b, void *p, size_t bytes);
size_t cuda_taken(const struct be *b);
int cuda_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
void *cuda_pinned(struct be *b, size_t bytes, struct err *e);
int cuda_fence(struct be *b, void **fence, struct err *e);
int cuda_passed(struct be *b, void *fence, struct err *e);
int cuda_move(struct be *b, int mover, void *dst, const void *src, size_t bytes, struct err *e);
/* From the host, which may reuse src on return; to the host, which has dst on return. */
int cuda_up(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
int cuda_down(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);

/* cuda_values.c: entries of be_ops. */
int cuda_param_import(struct be *b, int param, void *storage, const void *plain, struct err *e);
int cuda_param_export(struct be *b, int param, void *plain, const void *storage, struct err *e);
int cuda_load_open(struct be *b, int tensor, struct err *e);
int cuda_tensor_send(struct be *b, int tensor, int n, const void *plain, int *ticket, struct err *e);
int cuda_tensor_take(struct be *b, int tensor, int n, void *storage, int ticket, struct err *e);
int cuda_tensor_import(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e);
int cuda_tensor_export(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e);

static inline enum ktype type_of(const struct be *b, int tensor)
{
    return b->s->tensor[tensor].type == BF16 ? K_BF16 : K_F32;
}
static inline enum dnn_type product_type(const struct be *b)
{
    return b->s->dev.precision == BFLOAT16 ? DNN_BF16 : b->s->dev.precision == TF32 ? DNN_TF32 : DNN_F32;
}
static inline int channels(const struct be *b, int tensor) { return (int)b->g->tensor[tensor].shape.d[0]; }
/* As stored: padded with zeros if this is more than channels(). */
static inline int stored(const struct be *b, int tensor) { return select_channels(b->s, tensor); }
static inline bool padded(const struct be *b, int tensor) { return stored(b, tensor) > channels(b, tensor); }
static inline int64_t points(const struct be *b, int tensor)
{
    return shape_count(&b->g->tensor[tensor].shape) / b->g->tensor[tensor].shape.d[0];
}
static inline size_t count(const struct be *b, int tensor, int n)
{
    return (size_t)n * (size_t)shape_count(&b->g->tensor[tensor].shape);
}
static inline bool is_forward(const struct be_kernel *k) { return k->key.phase == PH_FWD; }
static inline bool adds(const struct be_call *c, int input) { return c->gin_acc >> input & 1; }
static inline struct k_grad grad_of(const struct be_call *c, int input)
{
    return (struct k_grad){c->gout, c->gin[input], adds(c, input)};
}
/* For n samples, without padding. */
static inline struct k_shape shape_of(const struct be *b, int tensor, int n)
{
    return (struct k_shape){type_of(b, tensor), n, points(b, tensor), channels(b, tensor)};
}
#endif
