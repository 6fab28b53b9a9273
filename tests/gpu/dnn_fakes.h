/* Stand-ins for cuDNN, cuBLASLt and the few calls of the CUDA runtime that src/backend/cuda_dnn*.c and cuda_gemm.c
 * make: descriptors are bags of attributes, and what is executed is computed at once, by loops over the dimensions
 * and strides that the descriptors say. So a test sees that operands, shapes, strides, sums and workspaces were
 * described as they are. For t_dnn alone; one thread. Device memory is host memory. */
#ifndef TESTS_DNN_FAKES_H
#define TESTS_DNN_FAKES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The engines that the heuristics name, in this order, in every graph; knob 2 of engine i has the value i. */
struct fake_engine {
    int index; unsigned notes, behaviour;                /* bits as in the library */
    size_t work;                                         /* read and written by the engine */
    float ms;                                            /* what its runs take */
    /* plans with it cannot be made; the device is gone when they are */
    bool broken, lost;
    bool adds_not;                                       /* nor those of a convolution that adds to its output */
};
extern struct fake_engine fake_engine[8];
extern int fake_n_engines, fake_n_fallback;              /* of mode A; and behind them, of the fallback mode */
extern int fake_n_more;                                  /* and behind those, of mode B, which names A's first, too */
extern bool fake_blas, fake_blas_bias;                   /* cuBLASLt has algorithms; with a bias in float */
extern float fake_blas_ms;
extern int fake_live;                                    /* descriptors and handles that exist */
extern int fake_ran;                                     /* engine that ran last; -1: a product */
extern int fake_packs;                                   /* variant packs made so far */

uint16_t fake_narrow(float x);                           /* bfloat16, to nearest */
float fake_wide(uint16_t x);
#endif
