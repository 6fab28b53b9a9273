/* op_call.saved of batch norm for a micro-batch: two arrays of `channels` doubles, mean, then biased variance. Kernels
 * of every backend write this layout. */
#ifndef OPS_BATCH_NORM_H
#define OPS_BATCH_NORM_H
#include "model/op.h"
enum { BN_WEIGHT, BN_BIAS, BN_MEAN, BN_VAR, BN_COUNT };  /* parameter slots */
struct bn_saved { double *mean, *var; };
static inline struct bn_saved bn_saved_at(void *saved, int64_t channels)
{
    double *d = saved;
    return (struct bn_saved){d, d + channels};
}
double bn_eps(const struct node *n);
#endif
