/* The inside of dnn.h on real libraries, shared by cuda_dnn*.c and cuda_gemm.c only.
 *
 * cuDNN's backend interface consists of descriptors: created, given attributes, finalised, and read-only from then on.
 * Here each one is a call of desc_new with a table of attributes. Descriptors live in a pool, which holds everything
 * that a plan refers to as long as the plan. */
#ifndef BACKEND_CUDA_CUDA_DNN_INT_H
#define BACKEND_CUDA_CUDA_DNN_INT_H
#include "backend/cuda/cuda_blaslt.h"
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include "backend/cuda/dnn.h"
#include "base/mem.h"
#include "kernels/kernels.h"

typedef cudnnBackendDescriptor_t desc;
struct pool { VEC(desc) d; };
struct attr { cudnnBackendAttributeName_t name; cudnnBackendAttributeType_t type; int64_t n; const void *v; };

/* Codes in here: 65 for what the libraries do not have (not supported, or only with more workspace), 69 when the
 * libraries or the device fail, 70 when they are short of memory. */
/* A finalised descriptor, owned by the pool; NULL: e, "cuDNN: what: reason". */
desc desc_new(struct pool *p, cudnnBackendDescriptorType_t kind, const char *what, const struct attr *a, int n,
              struct err *e);
#define DESC(pool, kind, what, e, ...) \
    desc_new(pool, CUDNN_BACKEND_##kind##_DESCRIPTOR, what, (const struct attr[]){__VA_ARGS__}, \
             (int)(sizeof((const struct attr[]){__VA_ARGS__}) / sizeof(struct attr)), e)
/* An attribute of one value, or of n values; n 0: it is not set. */
#define ONE(name, type, value) {CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, &(value)}
#define SOME(name, type, n, values) {CUDNN_ATTR_##name, CUDNN_TYPE_##type, n, values}
/* An attribute that is set unless its value is 0: some are only for a device, or for a described one. */
#define IF_SET(name, type, value) {CUDNN_ATTR_##name, CUDNN_TYPE_##type, (value) ? 1 : 0, &(value)}
/* An empty descriptor, which the library will fill; NULL: e. */
desc desc_empty(struct pool *p, cudnnBackendDescriptorType_t kind, struct err *e);
/* Elements of an attribute: desc_count returns their number, desc_get reads them. Both return at most max; missing:
 * 0. */
int64_t desc_count(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max);
int64_t desc_get(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max, void *out);
void pool_move(struct pool *to, struct pool *from, desc d);   /* moves d from pool `from` to the other pool */
void pool_free(struct pool *p);
int dnn_status(struct err *e, const char *what, cudnnStatus_t status);

struct dnn {
    int device;                                          /* -1: none */
    cudnnHandle_t handle;                                /* NULL without a device */
    cublasLtHandle_t blas;                               /* NULL without a device */
    struct pool pool; desc properties;                   /* of the described device; NULL with a real one */
    cudaStream_t stream;
    char name[64];
    char *table;                                         /* kernel table; "": none */
    VEC(struct dnn_plan *) plan;
    VEC(struct dnn_attention_plan *) attention;
};
void attention_free(struct dnn_attention_plan *p);
enum { WORK_ALIGN = 256 };                               /* of workspaces, as of the libraries' own allocations */

/* ---- graphs of convolution passes: cuda_dnn_graph.c ---------------------------------------------------- */

/* How a pass is put together. cuDNN writes weight gradients of bfloat16 operands only in bfloat16, unless another
 * operation follows in the graph. */
enum form {
    FORM_PLAIN,                    /* the convolution alone; it adds to the output by beta */
    FORM_APART,                    /* into workspace in the operands' type; an own kernel copies or adds it */
    FORM_ADD,                      /* weights: the graph adds its float sums to the output */
    FORMS
};
/* Tensors of a graph: a, b and c of dnn_run. SUM: the old value for ADD, in the memory of C. INNER has no memory. */
enum { ID_A = 1, ID_B, ID_C, ID_SUM, ID_INNER };
/* The operation graph of a convolution's pass; NULL: e. */
struct graph_ask { const struct dnn_conv *c; enum dnn_pass pass; bool acc; enum form form; };
desc graph_conv(struct dnn *d, struct pool *p, const struct graph_ask *ask, struct err *e);

/* ---- engines: cuda_dnn_choose.c ------------------------------------------------------------------------ */

enum { MAX_KNOBS = CUDNN_KNOB_TYPE_COUNTS };
/* The name of an engine's configuration within a graph. */
struct engine { int64_t index; int n_knobs; struct { int64_t type, value; } knob[MAX_KNOBS]; };
/* notes, behaviour: a bit for each note of the library */
struct choice { desc config, plan; struct engine engine; unsigned notes, behaviour; size_t work; };
struct choices { enum dnn_type type; struct choice *v; int n; };

/* The allowed configurations for out->type of arithmetic, best first in the library's ranking. LIST_A: those of mode A.
 * LIST_FALLBACK: the list of last resort. LIST_BOTH: all of A, then those that only mode B names. Their plans are not
 * made yet. The caller frees v. -1: e, there is none. */
enum choice_list { LIST_A, LIST_FALLBACK, LIST_BOTH };
int choices_find(struct dnn *d, struct pool *p, desc graph, enum choice_list list, struct choices *out,
                 struct err *e);
/* Is the choice deterministic, and as exact as the type requires? */
bool choice_allowed(const struct choice *c, enum dnn_type type);
/* Makes the choice's plan within max_work. -1: e, this configuration is not usable. */
int choice_make(struct dnn *d, struct pool *p, struct choice *c, size_t max_work, struct err *e);
/* The first configuration of the library's list that can be made; keep owns it and its plan. The others, some dozens,
 * are freed at once, because they are large. -1: e. */
struct choice_wish { enum choice_list list; enum dnn_type type; size_t max_work; };
int choice_first(struct dnn *d, desc graph, const struct choice_wish *wish, struct pool *keep, struct choice *out,
                 struct err *e);
/* The configuration with this name. -1: e. */
int choice_named(struct dnn *d, struct pool *p, desc graph, const struct engine *engine, struct choice *out,
                 struct err *e);

/* ---- the kernel table: cuda_dnn_table.c ------------------------------------------------------------------ */

extern const char *const form_name[FORMS];
/* 65 if the table of dnn_open is of another device, or is no table. */
int table_check(const struct dnn *d, struct err *e);
/* WHAT of the table's line "KEY: WHAT"; the caller frees it; NULL: there is no such line. */
char *table_find(const char *table, const char *key);
/* "68 2=3 5=1": number, knobs. kernel_read: reads form and engine; -1 if the text is not of this form. */
void engine_text(const struct engine *g, struct text *out);
int kernel_read(const char *s, enum form *form, struct engine *engine);

/* ---- plans: cuda_dnn.c --------------------------------------------------------------------------------- */

enum { CONV_KEY = 320 };                                 /* larger than a key of the largest numbers */
struct pack { const void *a, *b, *c, *work; desc d; };
struct dnn_plan {
    char key[CONV_KEY];                                       /* of the kernel table */
    const char *origin;                                  /* "heuristics" "kernel table" */
    struct gemm *gemm;                                   /* by cuBLASLt; otherwise the following */
    struct pool pool;
    struct choice choice;
    enum form form;
    enum dnn_type type;
    struct dnn_ask ask;                                  /* the request that it was made for */
    size_t out, apart;                                   /* elements of the output; bytes that FORM_APART takes first */
    bool bias; struct k_shape biased;                    /* linear layers: is a bias added, and to what */
    VEC(struct pack) pack;                               /* one for each set of pointers: as many as a run has slots */
};
/* Makes the plan p with this configuration; engine NULL: the first usable one. -1: e. */
int dnn_plan_make(struct dnn *d, const struct dnn_conv *c, enum form form, const struct engine *engine,
                  struct dnn_plan *p, struct err *e);
/* Makes the plan by cuBLASLt if the convolution is over single points. -1: e, or it is not. */
int dnn_plan_product(struct dnn *d, const struct dnn_conv *c, struct dnn_plan *p, struct err *e);
void dnn_plan_free(struct dnn_plan *p);
/* The versions of cuDNN and cuBLASLt, for which a kernel table is valid. */
void libraries_text(struct text *out);
void conv_key(const struct dnn_conv *c, const struct dnn_ask *ask, char out[CONV_KEY]);
/* The forms that a pass may take, best first; returns their number. */
int forms_of(const struct dnn_conv *c, const struct dnn_ask *ask, enum form out[FORMS]);
size_t conv_elements(const struct dnn_conv *c, int64_t id, enum dnn_pass pass);

/* ---- cuBLASLt: cuda_gemm.c ----------------------------------------------------------------------------- */

struct gemm;
/* NULL if the library has no algorithm within max_work (reason in e). */
struct gemm *gemm_new(struct dnn *d, const struct dnn_linear *l, const struct dnn_ask *ask, struct err *e);
void gemm_free(struct gemm *g);
size_t gemm_work(const struct gemm *g);
int gemm_run(struct dnn *d, struct gemm *g, const struct dnn_operands *o, struct err *e);
void gemm_text(const struct gemm *g, struct text *out);
#endif
