/* Products in bf16 on the matrix units of Intel processors (AMX): rows times weights.
 *
 * c[m][n] = or += (acc) the sum over k of a[m][k] b[k][n], + bias[n], rounded once. The sum is float: pairs of k in
 * ascending order. So a row's bits do not depend on the other rows, or on how many there are. */
#ifndef BACKEND_CPU_CPU_AMX_PRODUCT_H
#define BACKEND_CPU_CPU_AMX_PRODUCT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "model/graph.h"

enum { AMX_STEP = 32 };                                  /* k is a multiple of it */
/* The right side as it is stored: b[k][n] is at b[k k_step + n n_step], and one of the steps is 1. Of F32, BF16, F16,
 * or I8 with a factor for each index of the other step. For amx_pack it is rows [at, at + k) of one with k_all rows. */
struct amx_matrix {
    const void *b; int64_t k, n, k_step, n_step, at, k_all; int threads; enum dtype type; const float *factor;
};
/* Rows of a and c are a_line and c_line elements apart. The right side is what amx_pack made, or `from`, whose parts
 * are packed in each call, with equal bits. from: its k may be smaller; the rest of a's columns are zeros. bias NULL:
 * none. c: bf16, or floats (wide), which are not added to. */
struct amx_product {
    int64_t m, k, n, a_line, c_line; const uint16_t *a, *packed; const struct amx_matrix *from; const float *bias;
    void *c; bool wide, acc; int threads;
};

size_t amx_packed_bytes(int64_t k, int64_t n);
void amx_pack(const struct amx_matrix *m, uint16_t *to);
/* Bytes of workspace of a product of these sizes, and its calculation: needs amx_ready (cpu_amx.h). */
size_t amx_product_work(int64_t k, int64_t n, bool stored, int threads);
void amx_product_run(const struct amx_product *p, void *work);

/* The same for matrices as they lie (onednn/dnnl_half.h): `wide`, no bias. Of any sizes; on the calling thread. Bytes
 * of c->scratch, aligned to 64. */
struct half_shape; struct half_call;
size_t amx_half_work(int64_t n, int64_t k);
void amx_half_run(const struct half_shape *s, const struct half_call *c);

#endif
