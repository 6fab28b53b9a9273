/* A backend: memory and kernels of one device. It is one file be_NAME.c with one `const struct be_ops be_NAME`, and
 * BACKENDS has its name.
 *
 * Users: exec calls the backend; job and cli ask for the device. The entries below the heading "the device as a value"
 * need no open backend and may be called on any thread. Everything else runs on the thread that called `open`. struct
 * be, be_kernel and be_graph belong to the backend.
 *
 * Required: every entry that is not called optional. The smallest backend is be_null.c, the plainest one that computes
 * is be_reference.c. An optional entry may be NULL; its comment describes what happens then.
 *
 * Time: without a `stream` all work is finished on return. With one, calls are enqueued and run in order on the device;
 * host code sees results when `done` returns 1, or after a copy or an export to the host.
 * Set-up (open, alloc, prepare, load_open, event_reserve, recording) may be slow, allocate and measure; the
 * functions that a step calls may do neither.
 *
 * Errors: functions that return int return 0, or -1 with one line in e and its exit code. 69 (E_DEVICE): the device or
 * its library refuses the call. 70 (E_INTERNAL): out of host memory, or a broken contract. 78 (E_CONF): this backend
 * has no kernel for the request. Functions that return a pointer return NULL instead of -1.
 *
 * A new entry needs two users.
 *
 * This folder: one file be_NAME.c per backend; host.c and rules.h, which backends share. The kernels are in cpu/ and
 * cuda/. See docs/design/exec.md. */
#ifndef BACKEND_BE_H
#define BACKEND_BE_H
#include "base/err.h"
#include "model/op.h"
#include "plan/act.h"
#include "plan/select.h"

struct be; struct be_kernel; struct be_graph;

/* ---- arguments ------------------------------------------------------------------------------- */

/* What a kernel is made for. train false: evaluation, where batch norm reads its running statistics and dropout changes
 * nothing. */
struct be_key { int group; enum phase phase; int samples; bool train; };

/* The pointers of one call of the kernel (k, phase, n samples), where k is the selection's group. All are device memory
 * aligned to 64 bytes; those that a call does not use are NULL.
 *
 *   block     one struct be_block                        all phases
 *   sample    n int64: ids of the samples                all phases
 *   in[i]     n samples of tensor k->in[i]               forward; backward data those in need_b, weights in need_w
 *   outs[i]   n samples of tensor k->outs[i]             forward writes it; backward reads it if NEED_OUT, and writes
 *                                                        it with op_kind.outs_in_b
 *   saved     group_saved(k, n) bytes, the backend's     forward writes it; backward reads it if NEED_SAVED
 *   gouts[i]  gradient of outs[i], in its layout         both backwards; NULL of a loss (block->inv_weight), or of an
 *                                                        output that the loss does not depend on
 *   gin[i]    gradient of in[i], in in[i]'s layout       backward data, those in grad_in
 *   param[i]  parameter k->param[i]                      all phases
 *   pgrad[i]  gradient of param[i]: float, in its layout backward data those in pgrad_in_b, weights in pgrad_in_w
 *   packed    k->packed_bytes, as `pack` made them       all phases
 *   work      group_workspace(k, n) bytes, undefined     all phases
 *
 * A tensor t has the selection's type[t] and layout[t], channels[t] channels, and select_sample_bytes(s, t) bytes a
 * sample; a parameter p has param_type[p] and param_layout[p] (plan/device.h describes the layouts). gin[i] may be
 * gout's memory where k->grad_over is i. pgrad[i] is NULL if the parameter is not trained.
 *
 * The same tensor may be several inputs: in[i] and in[j] are then one address, and so are gin[i] and gin[j]. So a
 * kernel writes gin in ascending order of i, each whole before the next: the first one overwrites, and gin_acc marks
 * the others, which add to it. Where gin[i] is gout's memory, no other gin is. Fused groups never have a tensor twice
 * (plan/select.c). */
struct be_call {
    int n;                                               /* samples: the key's */
    const struct be_block *block;
    const int64_t *sample;
    const void *in[MAX_IN];
    union { void *out, *outs[MAX_OUT]; };                /* out: the first */
    void *saved;
    union { const void *gout, *gouts[MAX_OUT]; };
    void *gin[MAX_IN];
    uint8_t gin_acc;                                     /* bit i: gin[i] += instead of = */
    void *param[MAX_PARAM], *pgrad[MAX_PARAM];
    bool pgrad_acc;                                      /* pgrad[i] += instead of =, for all i */
    void *packed, *work;
};

/* A group with running statistics, and its parameters in device memory. */
struct be_running { int group; void *param[MAX_PARAM]; };
/* The running statistics of n groups at a step, from what n_mb micro-batches saved. The arrays are host memory. ns
 * stays at its address until close. Calls with the same ns have the same contents in all arrays: a backend may cache
 * copies. */
struct be_stats {
    const struct be_running *of; int n;
    bool deferred;                                       /* op_stats.deferred */
    int n_mb; const int *ns;                             /* [n_mb] samples of each micro-batch, in order */
    const void *const *saved;                            /* [n][n_mb] be_call.saved of each, device memory */
};

/* bytes of a device's unique name and of its bus address, with the final 0 */
enum { BE_ID = 48, BE_BUS = 32 };
/* threads that move data to and from a device, and back, at the same time */
enum { BE_MOVERS = 2 };

struct be_ops {
    const char *name, *text;                             /* a word for run.device; one line for the user */

    /* ---- the device as a value ---- */
    /* Device `unit` of this host (0 if there is only one). Reads the machine's state and changes nothing. 69 if there
     * is no such device. */
    int (*describe)(int unit, struct device *d, struct err *e);
    /* Optional: the properties that planning may assume where there is no such device. NULL: such a plan is refused. */
    void (*suppose)(struct device *d);
    /* Optional: the device of the rank with this number on its host, and an id unique among all devices. NULL: unit 0,
     * which ranks may share. */
    int (*unit)(int rank_here, int *unit, char id[BE_ID], struct err *e);
    /* Optional, called only if there is `unit`: the bus address, "0000:3B:00.0", "" if unknown. NULL: nothing is known
     * of memory near the device. */
    void (*bus)(int unit, char bus[BE_BUS]);
    /* Optional: measures which kernels of the libraries are fastest, for n micro-batch sizes in training, and adds them
     * to `table`, the text of device.kernels. NULL: there are no kernel tables. */
    int (*tune)(const struct selection *s, int unit, const int *sizes, int n, struct text *table, struct err *e);

    /* ---- open and close ---- */
    /* threads: of a rank on a CPU; unit: the device's index on this host. s must outlive the backend. */
    int (*open)(const struct selection *s, int threads, int unit, struct be **out, struct err *e);
    void (*close)(struct be *b);

    /* ---- memory ---- */
    /* Zeroed, 64-byte aligned (huge pages where they pay), touched. NULL: e has the bytes requested and free. */
    void *(*alloc)(struct be *b, size_t bytes, struct err *e);
    void (*free)(struct be *b, void *p, size_t bytes);
    /* Any direction, in order with run. On return the caller may reuse src; if dst is host memory, it is filled. */
    int (*copy)(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
    /* Optional: free memory of the device. NULL: the executor does not check before it allocates. */
    int (*free_memory)(struct be *b, size_t *bytes, struct err *e);
    /* Optional: bytes of the device that this backend holds, through alloc and for its own use. NULL: the executor
     * counts the bytes that it requested. */
    size_t (*taken)(const struct be *b);

    /* Optional: floating-point operations a second of a large matrix product on this rank's part of the device,
     * measured now, in milliseconds. NULL: unknown. */
    double (*peak)(struct be *b);

    /* ---- kernels ---- */
    /* The kernel for a key: equal keys give the same one. Kernels live until close. */
    int (*prepare)(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e);
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);

    /* ---- state ---- */
    /* Rebuilds a group's packed weights from its parameters; only for groups with packed_bytes. */
    int (*pack)(struct be *b, int group, void *const *param, void *packed, struct err *e);
    /* Storage of a parameter, of its gradient or of an optimizer's buffer of it <-> logical row-major host memory
     * (checkpoints, initialisation). If the selection stores the parameter in another type than the graph's, the call
     * converts it. Only backends whose rules set such a type (frozen_type) meet this. Storage may also be host memory
     * that a copy to the device follows. */
    int (*param_import)(struct be *b, int param, void *storage, const void *plain, struct err *e);
    int (*param_export)(struct be *b, int param, void *plain, const void *storage, struct err *e);
    /* storage, if it is host memory that has exactly these values; otherwise NULL. NULL: never. */
    void *(*param_values)(struct be *b, int param, void *storage);
    /* y += x, n floats of the device; sum of squares in double, in fixed order, into device memory. */
    int (*add)(struct be *b, float *y, const float *x, size_t n, struct err *e);
    int (*sumsq)(struct be *b, const float *x, size_t n, double *out, struct err *e);
    /* One step of optim_list[optimizer] for n weights. The list is host memory at the same address until close; a
     * backend may keep a copy of each different list. */
    int (*update)(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                  struct err *e);
    /* Does update also write be_weight.packed? false: be_weight.packed is NULL, and the executor calls `pack`. */
    bool packs;
    int (*stats)(struct be *b, const struct be_stats *s, struct err *e);

    /* ---- samples in and out: n of a tensor, storage <-> row-major host memory in the graph's type ---- */
    int (*tensor_import)(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e);
    int (*tensor_export)(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e);
    /* Optional, all three or none: import in two steps, so that the transfer to the device overlaps with the stream.
     * load_open (set-up): this rank will send that tensor. send copies n samples (the caller may reuse plain on return)
     * and sets a ticket. take puts the samples into storage, in order with the stream; storage NULL discards them.
     * Tickets are taken in the order of their sends; each tensor may have two open tickets. NULL: tensor_import. */
    int (*load_open)(struct be *b, int tensor, struct err *e);
    int (*tensor_send)(struct be *b, int tensor, int n, const void *plain, int *ticket, struct err *e);
    int (*tensor_take)(struct be *b, int tensor, int n, void *storage, int ticket, struct err *e);

    /* ---- the stream ---- */
    int (*done)(struct be *b, struct err *e);            /* 1: everything run so far is done, 0: not yet, -1: e */
    /* Optional: the stream's own handle, for transports that order their streams after it. NULL: the backend has no
     * stream, all following entries are NULL too, times are the host's, and every step makes all calls again. */
    void *(*stream)(struct be *b);
    /* The stream's clock. event_reserve (set-up): the number of events. event_record: event i is the time when the
     * stream gets here. event_elapsed: ns from event i to event j, once both are done. spin keeps the stream busy for
     * ns: the work enqueued meanwhile follows without a gap. */
    int (*event_reserve)(struct be *b, int n, struct err *e);
    int (*event_record)(struct be *b, int i, struct err *e);
    double (*event_elapsed)(struct be *b, int i, int j);
    int (*spin)(struct be *b, uint64_t ns, struct err *e);

    /* ---- memory of the host beside the device: NULL without a stream ---- */
    /* Set-up. Host memory that move reaches fastest, until close. */
    void *(*pinned)(struct be *b, size_t bytes, struct err *e);
    /* The fence is where the stream is now; it is made (set-up) if *fence is NULL, and lives until close. passed, on
     * any thread: waits until the stream has passed it. */
    int (*fence)(struct be *b, void **fence, struct err *e);
    int (*passed)(struct be *b, void *fence, struct err *e);
    /* Copies between device memory and pinned memory; done on return. On any thread, but one at a time with the same
     * mover, a number below BE_MOVERS. */
    int (*move)(struct be *b, int mover, void *dst, const void *src, size_t bytes, struct err *e);

    /* ---- recording: NULL without a stream ---- */
    /* Calls between capture_begin and capture_end are recorded instead of run; replay runs them again. Graphs live
     * until close. Resources that the calls need at their first use are made during the recording. out NULL: the
     * recording is discarded, also after an error. capture_end returns 1 with e if one of the calls cannot be recorded
     * but can run. */
    int (*capture_begin)(struct be *b, struct err *e);
    int (*capture_end)(struct be *b, struct be_graph **out, struct err *e);
    int (*replay)(struct be *b, struct be_graph *g, struct err *e);
};
extern const struct be_ops *const be_list[];
const struct be_ops *be_find(const char *name);

/* ---- for authors of backends ------------------------------------------------------------------ */

/* The kernel with this key among n, NULL: none. Every struct be_kernel begins with its key. */
static inline struct be_kernel *be_kernel_find(struct be_kernel *const *list, int n, const struct be_key *key)
{
    for (int i = 0; i < n; i++) {
        const struct be_key *k = (const struct be_key *)list[i];
        bool same = k->group == key->group && k->phase == key->phase && k->samples == key->samples;
        if (same && k->train == key->train) return list[i];
    }
    return NULL;
}

#endif
