/* What the rules of optimizers are written with, in C and CUDA. For optim_NAME.h, and for those who make loops of them:
 * optim.c for CPUs, kernels/optim.cu for GPUs.
 *
 * An optimizer is one file, optim_NAME.h, and its place in OPTIMS. The file defines, each OPTIM_FN but for once,
 *
 *   enum                                   its numbers in be_block.hyper: options, and what `once` makes of them
 *   int NAME_states(const double *hyper)   how many state buffers a weight has, at most MAX_STATE; all begin as zeros
 *   void NAME_once(struct be_block *)      completes hyper; on the host, once a step
 *   struct NAME_step, NAME_begin           what the elements of one weight need in this step, rounded to float here
 *   NAME_element                           the next weight; state[]: this element's state, which changes
 *
 * and ends with OPTIM_RULE(NAME, text, OPTIM_KEEPS(names of the state buffers), [index in hyper] = "SECTION.KEY", ...).
 * One that must know something of the whole weight before any element of it changes, such as a norm, ends with
 * OPTIM_RULE_WHOLE(the same), has all MAX_STATE buffers, and defines two more:
 *
 *   NAME_first                             the state's step, and what this element adds to OPTIM_SUMS sums in double
 *   NAME_whole                             what the sums say, for NAME_element, which leaves the state as it is
 *
 * Everything is compiled without contraction and without assuming that sums may change their order: so the bits are the
 * same on every device. */
#ifndef OPTIM_RULE_H
#define OPTIM_RULE_H
#include <math.h>
#include "model/op.h"

#ifdef __CUDACC__
#define OPTIM_FN static inline __host__ __device__
#else
#define OPTIM_FN static inline
#endif

/* What a rule begins with: a gradient scaled by the norm of all (train.clip_norm), then within +-most
 * (train.clip_value; 0: any). What is no number stays so. */
OPTIM_FN float clipped(float g, float coef, float most)
{
    g = coef * g;
    if (most > 0 && g > most) g = most;
    if (most > 0 && g < -most) g = -most;
    return g;
}

/* The average of a weight after a step: torch.lerp(average, w, fresh), to the bit (aten/src/ATen/native/Lerp.h). */
OPTIM_FN float average_element(float average, float w, float fresh)
{
    return fresh < 0.5f ? average + fresh * (w - average) : w - (w - average) * (1 - fresh);
}

enum { MAX_STATE = 2 };
#define OPTIM_KEEPS(...) {__VA_ARGS__}

/* State buffer k of a weight of n elements begins at state + k * optim_stride(n): at 64 bytes, as the first does. */
OPTIM_FN size_t optim_stride(size_t n) { return (n + 15) / 16 * 16; }

/* Sums over a weight have one order everywhere. A tile is OPTIM_TILE neighbours; number i of it goes to lane
 * i / 4 % OPTIM_LANES, each lane adds in ascending order, and then lane k takes up lane k + half, from half the lanes
 * down to one. What the tiles give is added likewise: tile i to lane i % OPTIM_LANES.
 * be_weight.sums: OPTIM_SUMS totals, then as many for each tile. */
enum { OPTIM_SUMS = 2, OPTIM_LANES = 256, OPTIM_TILE = OPTIM_LANES * 16 };
OPTIM_FN size_t optim_tiles(size_t n) { return (n + OPTIM_TILE - 1) / OPTIM_TILE; }
OPTIM_FN size_t optim_sums(size_t n) { return OPTIM_SUMS * (1 + optim_tiles(n)); }

#endif
