/* The loops of cpu_wino_impl.h and cpu_patch_impl.h on blocks of 16 channels, with the compiler's generic vectors: this
 * tests them where the processor has no such vectors. */
#include <string.h>
#define BLOCK 16
#define ROWS_TWO 12
#define ROWS_ONE 12
typedef float any_vec __attribute__((vector_size(BLOCK * sizeof(float))));
typedef float any_floats __attribute__((vector_size(BLOCK * sizeof(float)), aligned(sizeof(float)), may_alias));
#define VEC_T any_vec
#define VEC_LOAD(p) ((any_vec)*(const any_floats *)(p))
#define VEC_STORE(p, v) ((void)(*(any_floats *)(p) = (v)))
#define VEC_SET(x) ((x) - (any_vec){0})
#define VEC_FMA(a, b, c) ((a) * (b) + (c))
#define VEC_ADD(a, b) ((a) + (b))
#define VEC_SUB(a, b) ((a) - (b))
#define VEC_MUL(a, b) ((a) * (b))
#define VEC_ZERO() ((any_vec){0})
#include "backend/cpu/cpu_panel_impl.h"
#include "backend/cpu/cpu_wino_impl.h"
#include "backend/cpu/cpu_patch_impl.h"

extern const struct wino_ops wino_any;
extern const struct patch_ops patch_any;
const struct wino_ops wino_any = {pack, run, weights_run};
const struct patch_ops patch_any = {patch_coarse, patch_fine, patch_weights, patch_sums};
