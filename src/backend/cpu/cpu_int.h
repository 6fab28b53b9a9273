/* The inside of the onednn backend, shared by be_onednn.c, cpu_*.c and onednn/dnnl_*.c only.
 *
 * A kernel is made once (kernel_row.make), keyed by (group, phase, samples, train); running it only sets pointers and
 * executes. Layouts: plain is row-major [sample][channel][points]; blocked is [sample][channel / lanes][points][lanes].
 * Weights of a convolution are plain [out][in][points]; blocked: [out / lanes][in / lanes][points][lanes of in][lanes
 * of out]; or, with a plain input (few channels), [out / lanes][points][in][lanes of out].
 *
 * This folder: own vector kernels for AVX2 and AVX-512 (cpu_*_impl.h, compiled once for each), selection and layouts.
 * Files that call oneDNN are in onednn/. See docs/design/cpu.md. */
#ifndef BACKEND_CPU_CPU_INT_H
#define BACKEND_CPU_CPU_INT_H
#include "backend/host.h"
#include "backend/cpu/onednn/dnnl_api.h"
#include "backend/cpu/cpu_threads.h"
#include "backend/cpu/cpu_vec.h"
#include "backend/cpu/cpu_wino.h"

struct half_entry; struct half_weights; struct amx_matrix;

extern const struct be_ops be_onednn;

struct be {
    const struct selection *s;
    const struct graph *g;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* channel block of the effective instruction set: 16, 8 or 1 */
    int lanes;
    const struct vec_ops *vec;
    VEC(struct be_kernel *) kernel;
    VEC(struct half_entry *) half;                       /* products that kernels share (dnnl_half.h) */
    VEC(struct half_weights *) half_weights;             /* packed weights of convolutions (dnnl_conv_half.c) */
    bool asks;                                           /* only asks whether there is a kernel; none will run */
};

struct be_kernel {
    struct be_key key;
    const struct group *k;
    const struct node *node;                             /* the group's first node */
    /* channel block that all its tensors must have, or CPU_LAST; 0: as selected */
    int lanes;
    bool half;                                           /* it takes tensors in bf16 as they are stored */
    bool stored;                                         /* it takes weights in other types as they are stored */
    size_t taken;                                        /* workspace that the caller of run uses itself */
    size_t elements;                                     /* of a pointwise row: how many the next run takes */
    const struct kernel_row *row;
    char name[32];                                       /* row->name, or oneDNN's own: "jit:avx2" */
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);
    void (*close)(struct be_kernel *k);                  /* frees the maker's own data; NULL: there is none */
};

/* Makes the kernel that `like` describes: kernel_new(like, size of the maker's own struct, which begins with
 * be_kernel), then run and close. NULL: e. */
typedef struct be_kernel *kernel_maker(struct be *b, const struct be_kernel *like, struct err *e);
/* Makes the kernel by the first row that does not refuse. *why: the last reason; NULL: nobody asks. */
struct be_kernel *cpu_kernel_make(struct be *b, const struct be_kernel *like, const char **why, struct err *e);
/* The kernel of `make` for tensors that all have `lanes`, or channels last, with copies of tensors that do not. NULL:
 * the kernel of be_kernel.run, without data of its own. */
enum { CPU_LAST = -1 };
struct be_kernel *cpu_convert_make(struct be *b, const struct be_kernel *like, int lanes, kernel_maker *make,
                                   struct err *e);
/* The kernel on widened copies of the weights that are stored in other types (cpu_widen.c); it owns `inner`. Bytes of
 * the copies, at the beginning of the workspace. */
struct be_kernel *cpu_widen_make(struct be *b, struct be_kernel *inner);
size_t cpu_widen_work(const struct be *b, const struct group *k);
/* Is the tensor stored in bf16? */
static inline bool cpu_is_half(const struct be *b, int tensor) { return b->s->tensor[tensor].type == BF16; }
/* The kernel on copies in F32 of tensors that are stored in bf16 (cpu_half.c); it owns `inner`. Bytes of the copies, at
 * the beginning of the workspace. */
struct be_kernel *cpu_half_make(struct be *b, struct be_kernel *inner);
size_t cpu_half_work(const struct be *b, const struct be_kernel *k);
/* Members of rows for tensors in bf16 with channels last, by the loops of vec_half: on processors with bf16. */
const char *cpu_half_refuses(const struct selection *s, const struct group *k, enum phase ph);
#define HALF_ROW .types = TAKES(BF16), .layouts = ROW_LAYOUT(LAYOUT_LAST), .cost = 0.5, .refuses = cpu_half_refuses
/* kernel_row.refuses of attention on rows. */
const char *cpu_attention_rows_refuse(const struct selection *s, const struct group *k, enum phase ph);
/* Does each call take the first parameter as it is stored, because it is frozen or thin? Then it has no packed copy. */
bool cpu_half_each(const struct selection *s, const struct group *k);
/* The first parameter in bf16, as it lies: where a call finds it, and bytes of the copy that each call makes for that.
 * kernel_row.packed and .pack: of a copy for the whole step. */
const void *cpu_half_weights(const struct be *b, const struct group *k, const struct be_call *c, void *copy);
size_t cpu_half_copy(const struct selection *s, const struct group *k);
/* The first parameter, stored at w, as a right side (cpu_amx_product.h): of outputs, of input gradients (back). */
struct amx_matrix cpu_amx_matrix(const struct be *b, const struct group *k, bool back, const void *w);
size_t cpu_half_packed(const struct selection *s, const struct group *k);
int cpu_half_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed, struct err *e);
/* Convolutions of volumes without overlap, transposed or not (cpu_conv_patch.c): is this one of them? */
bool cpu_conv_patch(const struct selection *s, const struct node *n);
/* kernel_row.refuses of convolutions: those whose groups have one channel outside blocks; all others. */
const char *cpu_single_channels_refuse(const struct selection *s, const struct group *k, enum phase ph);
const char *cpu_several_channels_refuse(const struct selection *s, const struct group *k, enum phase ph);
void half_weights_free(struct be *b);
/* bias = or += (acc) the sum of a convolution's output gradients, over samples, then points, after the old value. */
void dnnl_conv_bias(const struct be *b, const struct be_kernel *k, const float *gout, float *bias, bool acc);
int kernel_lanes(const struct be *b, const struct be_kernel *k, int tensor);
void *kernel_new(const struct be_kernel *like, size_t size);
void kernel_free(struct be_kernel *k);

/* Bytes of workspace for the kernels' own use: of most; of convolutions. */
enum { CPU_WORK = 4096, CPU_CONV_WORK = (4 << 20) + 4096 };

/* 70 if the selection reserves less workspace for this kernel. */
int kernel_workspace(struct be *b, const struct be_kernel *k, size_t bytes, struct err *e);

/* Sets the effective instruction set and returns its channel block (be_onednn.c). */
int cpu_isa(struct device *d);

/* On all threads: y += x; y[columns] = or += (acc) the sum of the rows of x, row by row; vec_ops.sum_rows. */
void cpu_add(const struct be *b, float *y, const float *x, size_t n);
void cpu_add_rows(const struct be *b, float *y, const float *x, int64_t rows, int64_t columns, bool acc);
void cpu_sum_rows(const struct be *b, const uint16_t *x, int64_t rows, int64_t columns, float *sums, bool acc);

/* ---- oneDNN ---------------------------------------------------------------------------------- */
/* 69 with the library's name of the status; returns -1 */
int dnnl_fail(struct err *e, const char *what, dnnl_status_t status);

enum { PRIM_ARGS = 5 };
/* a primitive with its arguments: pointers are set before each execution */
struct prim {
    dnnl_primitive_t p;
    int n;
    dnnl_exec_arg_t arg[PRIM_ARGS];
    size_t scratch;                                      /* bytes of user scratchpad: argument 0 when not 0 */
    char name[32];                                       /* the library's name of its kernel */
};
struct prim_arg { int arg; const struct form *form; };   /* DNNL_ARG_*, and its form */
/* Makes the primitive of `pd` (destroyed in any case) for n arguments. */
int prim_make(struct be *b, struct prim *p, dnnl_primitive_desc_t pd, int n, const struct prim_arg *arg,
              struct err *e);
int prim_run(struct be *b, struct prim *p, void *scratch, void *const *ptr, struct err *e);
void prim_free(struct prim *p);

/* The library computes c[m][n], rows of ld floats, = or += (acc) a[m][k] b[k][n]. how: 'N', or 'T' if the matrix is
 * stored transposed, with rows of ld floats. */
struct matrix { char how; const float *at; int64_t ld; };
struct matmul { int64_t m, n, k; struct matrix a, b; bool acc; };
int matmul_run(struct matmul g, float *c, int64_t ld, struct err *e);

/* ---- layouts --------------------------------------------------------------------------------- */
static inline const struct node *group_node(const struct selection *s, const struct group *k)   /* the first */
{
    return &s->g->node[k->node[0]];
}
/* Tokens as rows (cpu_tokens.c): is the tensor LAYOUT_LAST? kernel_row.layout of operators that keep it. */
bool cpu_rows(const struct selection *s, int tensor);
enum layout cpu_rows_follow(const struct selection *s, const struct node *n);
int tensor_lanes(const struct be *b, int tensor);        /* LAYOUT_LAST: one block of all channels */
int64_t shape_points(const struct shape *s);             /* product of all dimensions but the first */
bool node_attr_is(const struct node *n, const char *name, int64_t value);   /* all of an attribute's values */
static inline size_t tensor_bytes(const struct be *b, int tensor, int n) { return host_tensor_bytes(b->g, tensor, n); }

/* Shape of a parameter's storage: out and in channels, points of the kernel, lanes (1: plain). in_plain: only `out` is
 * blocked. */
struct weight_form { int64_t out, in, points; int lanes; bool in_plain; };
struct weight_form weight_form(const struct be *b, int param);
/* A 1x1 convolution of stride 1 with blocked channels: backward-data is the forward convolution with transposed
 * weights. */
bool dnnl_conv_pointwise(const struct be *b, const struct node *n);
/* n samples of a tensor in a layout; a convolution's weights; the packed copy of the weights. */
void form_tensor(const struct be *b, int tensor, int lanes, int n, struct form *f);
void form_weight(const struct be *b, int param, int64_t groups, struct form *f);
/* Outer order of the packed weights' blocks: [in][out] for oneDNN's 1x1 kernels, else [out][in]. */
bool packed_in_first(const struct weight_form *f, bool pointwise);
void form_packed(const struct be *b, int param, bool transposed, struct form *f);

/* n samples of channels by points, blocked by lanes (1: plain). */
struct blocks { int n; int64_t channels, points; int lanes; };
struct blocks tensor_blocks(const struct be *b, int tensor, int n);      /* in the tensor's own layout */
/* dst = or += (acc) src in the other layout; with lanes 1 it just copies or adds. */
void to_blocked(float *dst, const float *src, struct blocks s, bool acc);
void to_plain(float *dst, const float *src, struct blocks s, bool acc);
/* dst = or += (acc) src, of elements of 2 (bf16) or 4 bytes, from s.lanes to `lanes`. */
void relay(void *dst, const void *src, struct blocks s, int lanes, size_t element, bool acc);
void weight_to_blocked(float *dst, const float *src, const struct weight_form *f, bool acc);
void weight_to_plain(float *dst, const float *src, const struct weight_form *f);
/* [out block][in block][point][in][out] -> each block transposed; outer order [in block][out block] if swap (1x1
 * convolutions). */
void weight_transpose(float *dst, const float *src, const struct weight_form *f, bool swap, int threads);

#endif
