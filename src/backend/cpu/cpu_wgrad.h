/* Weight gradients of convolutions on blocked channels, added directly to the accumulator (oneDNN can only overwrite).
 *
 * Better than oneDNN's kernel where planes are small: it skips the padding, and reads and writes each weight once. The
 * sum of one weight runs over samples, then points, after the old value of the accumulator, for any number of threads.
 * It needs AVX-512 for blocks of 16, AVX2 and FMA for blocks of 8. */
#ifndef BACKEND_CPU_CPU_WGRAD_H
#define BACKEND_CPU_CPU_WGRAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WGRAD_DIMS = 3 };
struct wgrad_shape {
    /* samples; spatial dimensions, at most WGRAD_DIMS; channels of a block, 16 or 8; OpenMP threads that it starts */
    int n, dims, lanes, threads;
    int64_t in_blocks, out_blocks;
    int64_t in[WGRAD_DIMS], out[WGRAD_DIMS], kernel[WGRAD_DIMS], stride[WGRAD_DIMS], padding[WGRAD_DIMS],
        dilation[WGRAD_DIMS];
};
struct wgrad;
/* Does this kernel take the shape? Only an even number of blocks of output channels, and no padding if the kernel is a
 * single point. */
bool wgrad_can(const struct wgrad_shape *s);
/* Is it faster than oneDNN's for a shape that it takes? A fixed rule, so every rank chooses alike. */
bool wgrad_wanted(const struct wgrad_shape *s);
struct wgrad *wgrad_new(const struct wgrad_shape *s);
void wgrad_free(struct wgrad *w);
/* grad [out block][in block][kernel point][lanes of in][lanes of out] = or += sum over samples and points of x *
 * gout. */
void wgrad_run(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work);
size_t wgrad_work(const struct wgrad_shape *s);          /* bytes of work, 64-byte aligned */

#endif
