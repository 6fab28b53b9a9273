/* Convolutions and matrix products on a GPU for the cuda backend: cuDNN's graph API and cuBLASLt behind plain values,
 * so that tests can use a double instead.
 *
 * User: the cuda backend. Thread: the one that opened it. Plans are made while a backend prepares, and live until
 * dnn_close. Runs enqueue on the stream of dnn_open, allocate nothing and wait for nothing. Tensors are channels last,
 * weights [c_out][kernel...][c_in / groups]; weight gradients are float. Equal keys give equal plans on equal devices
 * and libraries, and plans give equal bits for equal inputs. */
#ifndef BACKEND_CUDA_DNN_H
#define BACKEND_CUDA_DNN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

struct dnn; struct dnn_plan;

/* float, float with products by TF32, bfloat16 with sums in float (weights bfloat16, too) */
enum dnn_type { DNN_F32, DNN_TF32, DNN_BF16 };
enum dnn_pass { DNN_FORWARD, DNN_DATA, DNN_WEIGHTS };    /* y from x, w; dx from dy, w; dw from x, dy */

/* One to three spatial dimensions: missing ones come first and have width 1. */
struct dnn_conv {
    enum dnn_type type;
    int n, c_in, c_out, groups, in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
};
/* y[n][out] = x[n][in] w[out][in]^T + bias[out] (float). line: elements from one row of y, or of dy, to the next; 0:
 * out. wide: y is float for every type. Both are for cuBLASLt alone. */
struct dnn_linear { enum dnn_type type; int n, in, out; bool bias; int line; bool wide; };

/* device: index on this host; -1: none, plans only, for the device that `properties` (cuDNN's JSON) describes. table: a
 * kernel table by dnn_measure, NULL: heuristics. 69 with the library's words. 65 here for an invalid table, or one of
 * another device or version. 65 when a plan is made, if the libraries do not have the table's kernel or it needs more
 * workspace; no other kernel replaces it. */
int dnn_open(int device, const char *properties, void *stream, const char *table, struct dnn **out, struct err *e);
void dnn_close(struct dnn *d);
/* cuDNN's description of the device as JSON; the caller frees it. NULL: e. */
char *dnn_properties(struct dnn *d, struct err *e);

/* A request for a layer's plan. acc: every pass adds the result to the old value. The plan uses at most max_work of
 * workspace. */
struct dnn_ask { enum dnn_pass pass; bool acc; size_t max_work; };
/* Equal layers get the same plan. 69 if there is none. */
int dnn_conv_plan(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, struct dnn_plan **out,
                  struct err *e);
int dnn_linear_plan(struct dnn *d, const struct dnn_linear *l, const struct dnn_ask *ask, struct dnn_plan **out,
                    struct err *e);
size_t dnn_plan_work(const struct dnn_plan *p);
/* FORWARD: a = x, b = w, c = y; DATA: a = dy, b = w, c = dx; WEIGHTS: a = x, b = dy, c = dw. work: dnn_plan_work bytes.
 * bias: linear forward only, otherwise NULL. */
struct dnn_operands { const void *a, *b; void *c, *work; const float *bias; };
int dnn_run(struct dnn *d, struct dnn_plan *p, const struct dnn_operands *o, struct err *e);

/* Attention in bfloat16, with sums in float, of n samples: o = softmax(scale q k^T) v for each head. Rows of points: q
 * in steps of line_q elements, k and v in steps of line_kv, o and its gradient without gaps; heads follow each other. A
 * head of keys serves heads / kv_heads heads of queries. causal: a point sees those up to itself. width is a multiple
 * of 8, at most 128. */
struct dnn_attention { int n, points, heads, kv_heads, width; bool causal; float scale; int64_t line_q, line_kv; };
struct dnn_attention_plan;
/* Bytes that are enough for a plan: the backward pass stores a value for each pair of points. */
static inline size_t dnn_attention_work(const struct dnn_attention *a, bool back)
{
    if (!back) return 1 << 20;
    const size_t rows = (size_t)(a->points + 63) / 64 * 64, heads = (size_t)a->n * (size_t)a->heads;
    return 2 * heads * rows * rows + 8 * heads * (size_t)a->points * (size_t)a->width + (1 << 20);
}
/* The pass forward or back; it uses at most max_work bytes of workspace. 69: the library has none. */
int dnn_attention_plan(struct dnn *d, const struct dnn_attention *a, bool back, size_t max_work,
                       struct dnn_attention_plan **out, struct err *e);
/* stats: float[n][heads][points], written forward and read back: the logarithm of each row's sum of exponentials.
 * From go on: for the backward pass. gq, gk, gv lie as q, k, v. sums: float[n][heads][points], overwritten. */
struct dnn_attention_operands {
    const void *q, *k, *v; void *o; float *stats; const void *go; void *gq, *gk, *gv; float *sums; void *work;
};
int dnn_attention_run(struct dnn *d, struct dnn_attention_plan *p, const struct dnn_attention_operands *o,
                      struct err *e);
void dnn_attention_text(const struct dnn_attention_plan *p, struct text *out);

/* Times the candidates of a convolution pass on the device, and adds the fastest one's line to the kernel table, unless
 * the table has one for this pass. tries: DNN_TRY_COMPILED: also kernels that are compiled when they are made;
 * DNN_TRY_ALL: all that cuDNN's heuristics A and B name, instead of A's first eight. */
enum { DNN_TRY_COMPILED = 1, DNN_TRY_ALL = 2 };
int dnn_measure(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, unsigned tries,
                struct text *table, struct err *e);
/* The table's first line: device and versions, which dnn_open compares. dnn_measure writes it into an empty table. */
void dnn_table_head(const struct dnn *d, struct text *out);
/* "cuDNN 9.19.0, cuBLASLt 13.1.0"; and what else may change bits: "NVRTC 13.0", or "no NVRTC" */
void dnn_versions(struct text *libraries, struct text *beside);
/* Engine, notes, workspace: one line. */
void dnn_plan_text(const struct dnn_plan *p, struct text *out);
#endif
