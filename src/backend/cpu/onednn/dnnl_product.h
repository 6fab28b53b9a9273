/* Convolutions as matrix products on plain tensors: windows become columns, oneDNN's sgemm multiplies. For what the
 * library has only its reference loop for.
 *
 * Any groups, dilation and number of spatial dimensions up to three. Sums run over samples, pieces of output points and
 * then in sgemm's order, all fixed by the sizes. Where each group has one channel the windows are added up directly.
 * Any thread. */
#ifndef BACKEND_CPU_ONEDNN_DNNL_PRODUCT_H
#define BACKEND_CPU_ONEDNN_DNNL_PRODUCT_H
#include "backend/be.h"

struct product;
struct product *product_new(const struct op_call *shape, enum phase ph);   /* of g, node, n; the rest is not read */
/* several samples make one matrix where one has so few output points */
bool product_gathers(int64_t points);
void product_free(struct product *p);
/* bytes that product_run may use, at most 4 MiB and 128 bytes */
size_t product_work(const struct product *p);
/* Like op_kind's forward, backward_data or backward_weights: overwrites what c names. 69 */
int product_run(const struct product *p, const struct op_call *c, void *work, struct err *e);

#endif
