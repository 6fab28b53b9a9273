/* Shared by the tests of the GPU's kernels: memory of the type under test, one operator run by its reference kernels,
 * and comparison.
 *
 * Everything runs twice, for `way` 0 and 1. The second time threads and blocks run in descending order, and every
 * result that was passed to rig_same must have the same bits. */
#ifndef TESTS_KERNELS_RIG_H
#define TESTS_KERNELS_RIG_H
#include "graph_eval.h"
#include "kernels/kernels.h"
#include "sure.h"

/* _i of a loop test: bit 0 type, bit 1 way of adding. */
#define TYPE(i) ((i) & 1 ? K_BF16 : K_F32)
#define ACC(i) ((i) >> 1 & 1)
#define OK(call) ck_assert_int_eq((call), 0)

void rig_way(int way);                                  /* call first, with 0, then 1 (and 2: blocks in random order) */
void rig_same(const void *p, size_t bytes);

/* Arrays of `type`, aligned as on a device, with a guard after the last element. rig_new: filled with NaN; rig_array:
 * from floats; rig_at: read as float. */
void *rig_new(enum ktype type, size_t n);
void *rig_array(enum ktype type, const float *x, size_t n);
/* Memory for a gradient: garbage, or `old`, to which the kernel adds, [n][c][points]. */
void *rig_place(enum ktype type, const float *old, bool acc, int64_t n, int64_t c, int64_t points);
float rig_at(enum ktype type, const void *p, size_t i);
void rig_set(enum ktype type, void *p, size_t i, float x);
void rig_guard(enum ktype type, const void *p, size_t n);
size_t rig_bytes(enum ktype type, size_t n);
float rig_round(enum ktype type, float x);               /* as stored */

/* From now on rig_op_open puts NaN, infinities and zeros of either sign into inputs and gout. */
void rig_odd(bool on);
void rig_odd_among(float *x, size_t n);

/* Normal deviates that `type` represents exactly. */
float *rig_normals(enum ktype type, uint32_t which, size_t n);

/* [n][c][points], the reference's order, to channels last in a new array. */
void *rig_last(enum ktype type, const float *x, int64_t n, int64_t c, int64_t points);

/* Checks that y, channels last, is old + want (old NULL: want), both in the reference's order, within one rounding of
 * the type and within the precision of `sums` floats of the largest value. Values that are not finite must be the same
 * or, if sums may be formed in another way, at least not finite. Calls rig_same, checks the guard, frees y. */
void rig_check(enum ktype type, void *y, const float *want, const float *old, int64_t n, int64_t c, int64_t points,
               double sums);
/* The same if sums may cancel; terms were as large as `most`. */
void rig_check_near(enum ktype type, void *y, const float *want, const float *old, int64_t n, int64_t c, int64_t points,
                    double sums, double most);

/* One operator's example, called as op.h describes: inputs, parameters and gout are deviates that `type` represents.
 * forward and backward_data, and backward_weights if there are any, have run. */
struct rig_op {
    struct graph *g; const struct node *node;
    struct op_call c;
    struct be_block block;
    int64_t sample[16];
    int64_t channels, points;                            /* of the output */
};
void rig_op_open(struct rig_op *o, const char *op, const char *example, enum ktype type, int n);
void rig_op_close(struct rig_op *o);
/* Channels and points of input k. */
int64_t rig_in_channels(const struct rig_op *o, int k);
int64_t rig_in_points(const struct rig_op *o, int k);

extern unsigned rig_counters[K_COUNTERS];                /* zero before and after every kernel */
#endif
