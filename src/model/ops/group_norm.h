/* For group norm, instance norm and backends: sizes, and op_call.saved of a micro-batch: two doubles for each sample
 * and group, mean and 1 / sqrt(var + eps). Kernels of every backend write this layout. */
#ifndef OPS_GROUP_NORM_H
#define OPS_GROUP_NORM_H
#include "model/op.h"

enum { GN_WEIGHT, GN_BIAS };
struct group_norm { int64_t c, points, groups, width; double eps; bool affine; };   /* width: channels per group */
struct group_norm group_norm_of(const struct graph *g, const struct node *n);

/* op_kind's functions; groups: the node's number of groups. */
int group_norm_infer(const struct node *n, const struct shape *in, int64_t groups, struct infer *f, struct err *e);
size_t group_norm_saved(const struct graph *g, const struct node *n, int samples);
void group_norm_forward(const struct op_call *c);
void group_norm_backward(const struct op_call *c);
#endif
