/* Convolutions of volumes whose windows of 2x2x2 points touch but do not overlap (kernel 2, stride 2), on blocked
 * channels: products on the tensors in place. Transposed convolutions are the same passes in other roles.
 *
 * fine: the tensor with twice as many points in each dimension, of `in` channels; coarse: the other tensor, of `out`
 * channels. Weights are the convolution's, [out block][in block][8][lanes of in][lanes of out]; turned weights have
 * each block transposed. The sum of a value runs over blocks and points of the kernel, then channels, for any
 * micro-batch. A weight gradient's sum runs over samples, then points, after the old value. Any thread. It needs
 * AVX-512 for blocks of 16, AVX2 and FMA for blocks of 8. */
#ifndef BACKEND_CPU_CPU_PATCH_H
#define BACKEND_CPU_CPU_PATCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATCH_TAPS = 8, PATCH_BLOCKS = 64 };
/* samples, channels of a block; blocks of the fine and of the coarse tensor, at most PATCH_BLOCKS; points of the coarse
 * tensor */
struct patch_shape { int n, lanes; int64_t in_blocks, out_blocks, size[3]; };

/* One table for each instruction set. */
struct patch_ops {
    /* the coarse tensor = bias (NULL: 0) + products of the fine one, or += these (add, without bias) */
    void (*coarse)(const struct patch_shape *s, const float *fine, const float *w, const float *bias, float *coarse,
                   bool add);
    /* the fine tensor from the coarse one and turned weights */
    void (*fine)(const struct patch_shape *s, const float *coarse, const float *turned, const float *bias, float *fine,
                 bool add);
    /* grad, in the layout of weights, = or += products of both */
    void (*weights)(const struct patch_shape *s, const float *fine, const float *coarse, float *grad, bool add);
    /* sums[] = or += the sums over n samples of blocks by points: a bias's gradient */
    void (*sums)(int n, int64_t blocks, int64_t points, const float *x, float *sums, bool add);
};
extern const struct patch_ops patch_avx512, patch_avx2;

#endif
