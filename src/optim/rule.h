/* Building blocks for optimizer rules, in C and CUDA. For optim_NAME.h, and for the loops over elements: optim.c for
 * CPUs, kernels/optim.cu for GPUs.
 *
 * An optimizer is one file, optim_NAME.h, and an entry in OPTIMS. The file defines these functions, all OPTIM_FN except
 * NAME_once:
 *
 *   enum                                   indices in be_block.hyper: options, and values that NAME_once derives
 *   int NAME_states(const double *hyper)   number of state buffers per weight, at most MAX_STATE; initially 0
 *   void NAME_once(struct be_block *)      completes hyper; on the host, once a step
 *   struct NAME_step, NAME_begin           this step's values for the elements of one weight, rounded to float
 *   NAME_element                           the next weight; state[]: this element's state, which changes
 *
 * and ends with OPTIM_RULE(NAME, text, OPTIM_KEEPS(names of the state buffers), [index in hyper] = "SECTION.KEY", ...).
 * A rule that needs a value of the whole weight first, such as a norm, ends with OPTIM_RULE_WHOLE(the same). It has all
 * MAX_STATE buffers and defines two more:
 *
 *   NAME_first                             updates the state; the element's terms of OPTIM_SUMS sums in double
 *   NAME_whole                             uses the sums for NAME_element, which does not change the state
 *
 * Everything is compiled without contraction and without reordering of sums, so the bits are the same on every
 * device. */
#ifndef OPTIM_RULE_H
#define OPTIM_RULE_H
#include <math.h>
#include "model/op.h"

#ifdef __CUDACC__
#define OPTIM_FN static inline __host__ __device__
#else
#define OPTIM_FN static inline
#endif

/* The first step of a rule: scales a gradient by the factor of the global norm (train.clip_norm), then clips it to
 * +-most (train.clip_value; 0: no limit). A NaN stays a NaN. */
OPTIM_FN float clipped(float g, float coef, float most)
{
    g = coef * g;
    if (most > 0 && g > most) g = most;
    if (most > 0 && g < -most) g = -most;
    return g;
}

/* A weight's average after a step: torch.lerp(average, w, fresh), to the bit (aten/src/ATen/native/Lerp.h). */
OPTIM_FN float average_element(float average, float w, float fresh)
{
    return fresh < 0.5f ? average + fresh * (w - average) : w - (w - average) * (1 - fresh);
}

enum { MAX_STATE = 2 };
#define OPTIM_KEEPS(...) {__VA_ARGS__}

/* State buffer k of a weight of n elements begins at state + k * optim_stride(n), aligned to 64 bytes like the
 * first. */
OPTIM_FN size_t optim_stride(size_t n) { return (n + 15) / 16 * 16; }

/* Sums over a weight have the same order everywhere. A tile is OPTIM_TILE neighbours. Element i of a tile goes to lane
 * i / 4 % OPTIM_LANES. Each lane adds in ascending order; then lane k adds lane k + half, from half the lanes down to
 * one. The tiles' sums are added the same way: tile i goes to lane i % OPTIM_LANES.
 * be_weight.sums: OPTIM_SUMS totals, then as many for each tile. */
enum { OPTIM_SUMS = 2, OPTIM_LANES = 256, OPTIM_TILE = OPTIM_LANES * 16 };
OPTIM_FN size_t optim_tiles(size_t n) { return (n + OPTIM_TILE - 1) / OPTIM_TILE; }
OPTIM_FN size_t optim_sums(size_t n) { return OPTIM_SUMS * (1 + optim_tiles(n)); }

#endif
