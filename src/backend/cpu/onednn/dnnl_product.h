/* Convolutions as matrix products on plain tensors: windows become columns, and oneDNN's sgemm multiplies. For
 * convolutions that the library serves only by its reference loop.
 *
 * Any groups, dilation and number of spatial dimensions up to three. Sums run over samples, pieces of output points and
 * then in sgemm's order, all fixed by the sizes. If each group has one channel, the windows are added directly. Any
 * thread. */
#ifndef BACKEND_CPU_ONEDNN_DNNL_PRODUCT_H
#define BACKEND_CPU_ONEDNN_DNNL_PRODUCT_H
#include "backend/be.h"

struct product;
struct product *product_new(const struct op_call *shape, enum phase ph);   /* of g, node, n; the rest is not read */
/* do several samples make one matrix, because one has so few output points? */
bool product_gathers(int64_t points);
void product_free(struct product *p);
/* bytes that product_run may use, at most 4 MiB and 128 bytes */
size_t product_work(const struct product *p);
/* Like op_kind's forward, backward_data or backward_weights: overwrites what c names. 69 */
int product_run(const struct product *p, const struct op_call *c, void *work, struct err *e);

#endif
