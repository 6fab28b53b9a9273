/* Gradients of weights in bf16 on the matrix units of Intel processors (AMX): sums of outer products over points.
 *
 * sums[i][a][b] = or += (acc) the sum over all slots u of x[u + shift[i].by][a] g[u][b], in float.
 *
 * Slots are places in a grid that is wider than the output: next to each row of points is room for what a kernel reads
 * outside of it. So each position of a convolution's kernel is one shift of slots. x_point and g_point say which point
 * of a sample lies in a slot, -1: a zero. A convolution with strides has several grids of x, the phases. NULL: a
 * sample's slots are its points.
 *
 * Order of a sum: chunks of slots (amx_sums_work counts with the same) in ascending order, in them pairs of slots. It
 * depends on the shape alone, not on the number of threads. */
#ifndef BACKEND_CPU_CPU_AMX_H
#define BACKEND_CPU_CPU_AMX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct amx_shift { int phase; int64_t by; };
/* Channels, the distance of points in elements, and the points of a sample. */
struct amx_side { int64_t channels, line, points; };
struct amx_sums {
    int64_t samples, slots;                              /* slots of a sample */
    struct amx_side x, g;
    int phases; const int32_t *x_point, *g_point;        /* [phases][slots], [slots]; both NULL or none */
    int shifts; const struct amx_shift *shift;           /* at least one */
    int threads;
};

/* Lets this process use the units' registers, which Linux gives only on request. False: it does not. Any thread. */
bool amx_ready(void);
size_t amx_sums_work(const struct amx_sums *s);          /* bytes */
/* work: amx_sums_work bytes, aligned to 64. Needs amx_ready. Starts s->threads threads of OpenMP. */
void amx_sums_run(const struct amx_sums *s, const uint16_t *x, const uint16_t *g, float *sums, bool acc, void *work);

#endif
