/* What batch norm keeps of one micro-batch (op_call.extra): two arrays of `channels` doubles: mean, then biased
 * variance. Kernels of every backend write this layout. */
#ifndef OPS_BATCH_NORM_H
#define OPS_BATCH_NORM_H
#include "model/op.h"
enum { BN_WEIGHT, BN_BIAS, BN_MEAN, BN_VAR, BN_COUNT };  /* parameter slots */
struct bn_extra { double *mean, *var; };
static inline struct bn_extra bn_extra_at(void *extra, int64_t channels)
{
    double *d = extra;
    return (struct bn_extra){d, d + channels};
}
double bn_eps(const struct node *n);
#endif
