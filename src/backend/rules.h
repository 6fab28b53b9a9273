/* What each backend says of selection and speed (plan/device.h), as values that need no machine. Backends, for
 * be_ops.describe; and tests that plan for a device that is not at hand. */
#ifndef BACKEND_RULES_H
#define BACKEND_RULES_H
#include "plan/select.h"

extern const struct select_rules host_rules, onednn_rules;
extern const struct device_speed host_speed, onednn_avx512_speed, onednn_avx2_speed;
extern const struct select_rules cuda_rules;             /* where cuda is built */
extern const struct device_speed cuda_speed;
bool cuda_has(const struct op_kind *op);                 /* cuda_rules.has (be_cuda.c): its kernels are listed there */

/* Of any CPU core: what struct device_speed holds beside its products and passes, as profiles of ResNet-50 and of fully
 * connected networks show it, rounded. */
#define HOST_SPEED \
    .weights = 10.0, .values = 1.2, .norm_back = 1.3, .channel_ns = 30.0, .point_times = 5, .latency_ns = 9000, \
    .transfer = 4, .busy_ns_per_byte = 0.2

/* Of kernels in host memory: room to compute every gradient apart before it is added, and to convert layouts of all
 * values; and `beside` bytes that they want for themselves. */
void host_sizes(const struct selection *s, struct group *k, size_t beside);

#endif
