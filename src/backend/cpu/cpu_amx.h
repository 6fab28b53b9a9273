/* Products in bf16 on the matrix units of Intel processors (AMX): gradients of weights, whose sums run over rows.
 *
 * grad[out][in] = or += (acc) the sum over rows r of g[r][out] x[r][in], in float. Even and odd rows of 32 are summed,
 * both sums are added, and this to the old value, in the order of the rows; so the bits depend on which row is the
 * first. out and in are multiples of AMX_WIDTH. work: amx_weights_work bytes, aligned to 64. Needs amx_ready. Any
 * thread, and only that one. */
#ifndef BACKEND_CPU_CPU_AMX_H
#define BACKEND_CPU_CPU_AMX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_WIDTH = 32 };
struct amx_weights { int64_t rows, out, in; const uint16_t *g, *x; float *grad; bool acc; void *work; };
/* Lets this process use the units' registers, which Linux gives only on request. False: it does not. Any thread. */
bool amx_ready(void);
size_t amx_weights_work(int64_t out, int64_t in);
void amx_weights_run(const struct amx_weights *w);

#endif
