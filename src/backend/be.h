/* A backend: memory and kernels of one device. One file be_NAME.c with one `const struct be_ops be_NAME`, its name in
 * BACKENDS.
 *
 * Who may use it: exec only. Thread: the one that opened it (be_ops.open), except nothing. Opaque: struct be is the
 * backend's own. `prepare` may be slow, allocate and measure; `run` may do neither. A backend with a `lane` is
 * asynchronous: what is enqueued runs in order on its compute lane, host code sees results when `done` says so, and
 * device transports order their own lanes after it by events. Without a lane everything has happened on return. Entries
 * marked * are NULL in backends without a lane. A new entry needs two users. */
#ifndef BACKEND_BE_H
#define BACKEND_BE_H
#include "base/err.h"
#include "model/op.h"
#include "plan/act.h"
#include "plan/select.h"

struct be; struct be_kernel; struct be_graph;
/* a device's name among all, and its place, with their ends */
enum { BE_ID = 48, BE_BUS = 32 };

/* Pointers of one kernel call; those the call does not use are NULL. Layouts and sizes are those of the selection. */
struct be_call {
    int n;                                               /* samples */
    const struct be_block *block;                        /* device memory */
    const int64_t *sample;                               /* n sample ids, device memory */
    const void *in[MAX_IN]; void *out, *extra;
    const void *gout; void *gin[MAX_IN]; uint8_t gin_acc; /* bit k: gin[k] += instead of = */
    void *param[MAX_PARAM], *pgrad[MAX_PARAM]; bool pgrad_acc; /* pgrad += instead of = */
    /* second weight layout; workspace of group_workspace(n) bytes */
    void *derived, *work;
};

/* A group whose running statistics a step applies, and its parameters. */
struct be_stats { int group; void *param[MAX_PARAM]; };

struct be_ops {
    const char *name, *text;
    /* Device `unit` of this host as a value (0 where there is one); pure as far as the machine goes. 69 if there is
     * none. */
    int (*describe)(int unit, struct device *d, struct err *e);
    void (*suppose)(struct device *d);                   /* * what planning may take for one where there is none */
    /* * Which device of its host the rank with this number there uses, and what tells that device from all others. 69
     */
    int (*unit)(int rank_here, int *unit, char id[BE_ID], struct err *e);
    /* * Where it is: "0000:3B:00.0", "" if nobody says. */
    void (*bus)(int unit, char bus[BE_BUS]);
    /* * Measures which of its libraries' kernels are fastest, for n micro-batch sizes in training, and adds that to
     * `table`: text that struct device carries. */
    int (*tune)(const struct selection *s, int unit, const int *sizes, int n, struct text *table, struct err *e);
    /* threads: of a rank on a CPU; unit: which device of this host, where there are several. */
    int (*open)(const struct selection *s, int threads, int unit, struct be **out, struct err *e);
    void (*close)(struct be *b);
    /* Zeroed, 64-byte aligned (huge pages where that pays), touched. NULL: e says bytes wanted and free. */
    void *(*alloc)(struct be *b, size_t bytes, struct err *e);
    void (*free)(struct be *b, void *p, size_t bytes);
    /* Any direction, in order with run. On return src may be reused; host memory as dst is filled. */
    int (*copy)(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
    int (*room)(struct be *b, size_t *bytes, struct err *e);   /* * free memory of the device */
    /* * bytes of it that this backend holds, for callers of alloc and for itself */
    size_t (*taken)(const struct be *b);
    /* A kernel for (group, phase, samples, train or not, clipping of gradients...). Kernels live until close; the same
     * key gives the same kernel. */
    int (*prepare)(struct be *b, int group, enum phase ph, int samples, bool train, struct be_kernel **out,
                   struct err *e);
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);
    /* May one call on `samples` stand for calls on `part` of them after each other (the last may have fewer)? Only if
     * it leaves the same bits, gradients of weights being added part by part. Set-up, may be slow; NULL: never. */
    bool (*joins)(struct be *b, int group, enum phase ph, int part, int samples);
    /* Rebuilds a group's derived weights from its parameters. */
    int (*derive)(struct be *b, int group, void *const *param, void *derived, struct err *e);
    /* Storage of a parameter, of its gradient or of an optimizer's buffer of it <-> logical row-major (checkpoints,
     * initialisation). What the selection stores in another type than the graph's is converted: only backends whose
     * rules ask for that (frozen_type) meet it. */
    int (*param_import)(struct be *b, int param, void *storage, const void *plain, struct err *e);
    int (*param_export)(struct be *b, int param, void *plain, const void *storage, struct err *e);
    /* y += x, n floats; sum of squares in double, fixed order, into the backend's memory. */
    int (*add)(struct be *b, float *y, const float *x, size_t n, struct err *e);
    int (*sumsq)(struct be *b, const float *x, size_t n, double *out, struct err *e);
    /* One step of optim_list[optimizer] for n weights; the list stays as it is and where it is until close. */
    int (*update)(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                  struct err *e);
    bool derives;                                        /* * update can make derived weights in the same pass */
    /* op_kind.stats of n groups: running statistics from what n_mb micro-batches of ns[i] samples kept, ascending;
     * extra[n][n_mb]. */
    int (*stats)(struct be *b, const struct be_stats *k, int n, const char *mode, int n_mb, const void *const *extra,
                 const int *ns, struct err *e);
    /* Activation storage <-> row-major host memory, n samples of a tensor (loading inputs, looking at values in tests).
     */
    int (*tensor_import)(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e);
    /* * The same in two steps, so that the way to the device overlaps with the lane: send copies n samples away (plain
     * may be reused on return) and yields a ticket; take puts them into storage, in order with the lane. Tickets are
     * taken in the order they were given; a few may be open. */
    int early;
    int (*load_room)(struct be *b, int tensor, struct err *e);   /* set-up: this rank will send that tensor */
    int (*tensor_send)(struct be *b, int tensor, int n, const void *plain, int *ticket, struct err *e);
    int (*tensor_take)(struct be *b, int tensor, int n, void *storage, int ticket, struct err *e);
    int (*tensor_export)(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e);
    int (*done)(struct be *b, struct err *e);            /* 1: everything run so far is done, 0: not yet, -1: e */
    /* * the compute lane's own handle, for transports of the same device */
    void *(*lane)(struct be *b);
    /* * The lane's clock. mark_room: how many marks there may be (set-up); mark: i is when the lane comes here;
     * between: ns from mark i to j, once done. */
    int (*mark_room)(struct be *b, int n, struct err *e);
    int (*mark)(struct be *b, int i, struct err *e);
    /* keeps the lane busy for so long, so that the next calls follow each other at once */
    int (*hold)(struct be *b, uint64_t ns, struct err *e);
    double (*between)(struct be *b, int i, int j);
    /* * Calls between capture_begin and capture_end are recorded instead of run; replay runs them again. Graphs live
     * until close. What the calls need at their first use is made while they are recorded. out NULL: the recording is
     * thrown away, also one that an error broke off. capture_end returns 1 with e if something that was called cannot
     * be recorded, though it may run. */
    int (*capture_begin)(struct be *b, struct err *e);
    int (*capture_end)(struct be *b, struct be_graph **out, struct err *e);
    int (*replay)(struct be *b, struct be_graph *g, struct err *e);
    /* * Between capture_begin and capture_end. aside(true): what follows runs beside the lane, after all that the lane
     * has been given; aside(false): on the lane again. join: the lane goes on after the first n such pieces of this
     * recording; whoever made some joins them all. For selections whose device has overlap_wgrad. */
    int (*aside)(struct be *b, bool on, struct err *e);
    int (*join)(struct be *b, int n, struct err *e);
};
extern const struct be_ops *const be_list[];
const struct be_ops *be_find(const char *name);

#endif
