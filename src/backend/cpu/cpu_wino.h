/* Convolutions of volumes (3x3x3 points) and pictures (3x3), stride 1, padding 1, on blocked channels: Winograd's
 * F(2x2, 3x3) (Lavin and Gray 2016, arXiv 1509.09308), for volumes a sum of it over three planes. It needs 4/9 of the
 * multiplications of the direct sum, for outputs and for both gradients.
 *
 * Its transforms add, subtract and halve, so its rounding is close to the direct sum's: gradients are within some 1e-7
 * of double precision (tests/t_wino.c). An output's sum runs over planes of the kernel, then channels, for any
 * micro-batch. Weight gradients are summed over pieces of the micro-batch, then added to the old values. Threads
 * share blocks of channels, then points of tiles, and change no bit. It needs AVX-512 for blocks of 16, AVX2 and FMA
 * for blocks of 8. */
#ifndef BACKEND_CPU_CPU_WINO_H
#define BACKEND_CPU_CPU_WINO_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* samples, channels of a block: 16 or 8; channels; depth, height, width; planes of the kernel: 3, or 1 for pictures,
 * which have depth 1; threads. */
struct wino_shape { int n, lanes; int64_t in, out, size[3]; int deep, threads; };
/* Does this kernel take the shape, and is it the faster one? Whole blocks of channels, few enough, and enough
 * tiles, that it does not mostly read weights. n does not matter. */
bool wino_takes(const struct wino_shape *s);
/* The same for weight gradients: enough tiles that the sums of their points cost less than they save. */
bool wino_weights_wanted(const struct wino_shape *s);
/* Its multiplications relative to those of the direct sum. */
double wino_share(const struct wino_shape *s);

/* Transformed weights: their number of floats; wino_pack makes them from [out block][in block][27][lanes of in][lanes
 * of out]. turned: for input gradients. */
size_t wino_weights(const struct wino_shape *s);
void wino_pack(const struct wino_shape *s, const float *w, bool turned, float *to);

/* Bytes of work, 64-byte aligned: of outputs and input gradients; of weight gradients. */
size_t wino_work(const struct wino_shape *s);
size_t wino_weights_work(const struct wino_shape *s);
/* y = bias (NULL: 0) + the convolution of x with transformed weights, or y += it (add, without bias). For an input
 * gradient swap the channels of the shape, and pass gout and turned weights. */
void wino_run(const struct wino_shape *s, const float *x, const float *u, const float *bias, float *y, bool add,
              void *work);
/* grad, in the layout of weights, and bias = or += their gradients; bias may be NULL. */
void wino_weights_run(const struct wino_shape *s, const float *x, const float *gout, float *grad, float *bias, bool add,
                      void *work);

#endif
