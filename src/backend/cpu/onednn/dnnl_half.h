/* Products of matrices in bf16 with sums in float, by oneDNN, for processors with instructions for them. Users: the
 * kernels of products. The thread of the backend. */
#ifndef BACKEND_CPU_ONEDNN_DNNL_HALF_H
#define BACKEND_CPU_ONEDNN_DNNL_HALF_H
#include "backend/cpu/cpu_int.h"

/* c[m][n] = or += (acc) a[m][k] b[k][n] + bias[n]. Row-major with rows of ld elements; 'T': stored transposed. c is
 * bf16, or float (wide); the bias is float. */
struct half_matrix { char how; int64_t ld; };
struct half_shape { int64_t m, n, k; struct half_matrix a, b; int64_t ld; bool wide, acc, bias; };
struct half_product { struct prim p; };

/* 0, and p is the caller's to prim_free. E_CONF with a reason: the library has no fast kernel, or it needs more than
 * `space` bytes of scratch. */
int half_make(struct be *b, struct half_product *p, const struct half_shape *s, size_t space, struct err *e);
struct half_call { const void *a, *b; const float *bias; void *c, *scratch; };
int half_run(struct be *b, struct half_product *p, const struct half_call *c, struct err *e);
/* The product of this shape that all kernels of the backend share; made when first asked for. NULL: as half_make. */
struct half_product *half_shared(struct be *b, const struct half_shape *s, size_t space, struct err *e);
void half_shared_free(struct be *b);
/* Bytes of scratch that are enough for a shape: copies of both matrices, and some for each thread. */
size_t half_scratch(int64_t m, int64_t n, int64_t k, int threads);

#endif
