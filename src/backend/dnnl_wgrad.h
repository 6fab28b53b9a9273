/* Weight gradients of convolutions on 16-channel blocks, added straight to the accumulator (oneDNN can only overwrite).
 *
 * Better than oneDNN's kernel where planes are small: it skips what lies in the padding and reads and writes each weight once. The sum of
 * one weight runs over samples, then points, after the old value of the accumulator. Any thread; needs AVX-512. */
#ifndef BACKEND_DNNL_WGRAD_H
#define BACKEND_DNNL_WGRAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WGRAD_DIMS = 3 };
struct wgrad_shape {
    int n, dims;                                         /* samples; spatial dimensions, at most WGRAD_DIMS */
    int64_t in_blocks, out_blocks;                       /* of 16 channels; out_blocks even */
    int64_t in[WGRAD_DIMS], out[WGRAD_DIMS], kernel[WGRAD_DIMS], stride[WGRAD_DIMS], padding[WGRAD_DIMS], dilation[WGRAD_DIMS];
};
struct wgrad;
/* Whether this kernel is the one to use for a shape: a fixed rule, so that every rank chooses alike. */
bool wgrad_wanted(const struct wgrad_shape *s);
struct wgrad *wgrad_new(const struct wgrad_shape *s);
void wgrad_free(struct wgrad *w);
/* grad [out block][in block][kernel point][16 in][16 out] = or += sum over samples and points of x * gout. */
void wgrad_run(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work);
size_t wgrad_work(const struct wgrad *w);                /* bytes of work, 64-byte aligned */

#endif
