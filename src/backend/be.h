/* A backend: memory and kernels of one device. One file be_NAME.c with one `const struct be_ops be_NAME`, its name in BACKENDS.
 *
 * Who may use it: exec only. Thread: the one that opened it (be_ops.open), except nothing. Opaque: struct be is the backend's own.
 * `prepare` may be slow, allocate and measure; `run` may do neither. run may be asynchronous on the backend's compute lane; host code sees results
 * after sync, other lanes after record/wait. CPU backends run at once and their events are NULL. A new entry needs two users. */
#ifndef BACKEND_BE_H
#define BACKEND_BE_H
#include "base/err.h"
#include "model/op.h"
#include "plan/plan.h"

struct be; struct be_kernel; struct be_event;

/* Pointers of one kernel call; those the call does not use are NULL. Layouts and sizes are those of the selection. */
struct be_call {
    int n;                                               /* samples */
    const struct be_block *block;                        /* device memory */
    const int64_t *sample;                               /* n sample ids, device memory */
    const void *in[MAX_IN]; void *out, *extra;
    const void *gout; void *gin[MAX_IN]; uint8_t gin_acc; /* bit k: gin[k] += instead of = */
    void *param[MAX_PARAM], *pgrad[MAX_PARAM]; bool pgrad_acc; /* pgrad += instead of = */
    void *derived, *work;                                /* second weight layout; workspace of group_workspace(n) bytes */
};

struct be_ops {
    const char *name, *text;
    /* The device as a value; pure as far as the machine goes. 69 if there is none. */
    int (*describe)(struct device *d, struct err *e);
    int (*open)(const struct selection *s, int threads, struct be **out, struct err *e);
    void (*close)(struct be *b);
    /* Zeroed, 64-byte aligned (huge pages where that pays), touched. NULL: e says bytes wanted and free. */
    void *(*alloc)(struct be *b, size_t bytes, struct err *e);
    void (*free)(struct be *b, void *p, size_t bytes);
    int (*copy)(struct be *b, void *dst, const void *src, size_t bytes, struct err *e); /* any direction; complete on return for CPUs */
    /* A kernel for (group, phase, samples, train or not, clipping of gradients...). Kernels live until close; the same key gives the same kernel. */
    int (*prepare)(struct be *b, int group, enum phase ph, int samples, bool train, struct be_kernel **out, struct err *e);
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);
    /* Rebuilds a group's derived weights from its parameters. */
    int (*derive)(struct be *b, int group, void *const *param, void *derived, struct err *e);
    /* Parameter storage <-> logical row-major (checkpoints, initialisation). */
    int (*param_import)(struct be *b, int param, void *storage, const void *plain, struct err *e);
    int (*param_export)(struct be *b, int param, void *plain, const void *storage, struct err *e);
    /* y += x, n floats; sum of squares in double, fixed order; optimizer update of one weight (optim/optim.h). */
    int (*add)(struct be *b, float *y, const float *x, size_t n, struct err *e);
    int (*sumsq)(struct be *b, const float *x, size_t n, double *out, struct err *e);
    int (*update)(struct be *b, const char *optimizer, float *w, const float *g, float *state, size_t n, double lr_factor, double decay_factor,
                  const struct be_block *block, struct err *e);
    /* Activation storage <-> row-major host memory, n samples of a tensor (loading inputs, looking at values in tests). */
    int (*tensor_import)(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e);
    int (*tensor_export)(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e);
    int (*sync)(struct be *b, struct err *e);            /* everything run so far is done */
};
extern const struct be_ops *const be_list[];
const struct be_ops *be_find(const char *name);

#endif
