/* Each backend's rules of selection and speeds (plan/device.h), as values that need no machine. Users: backends, for
 * be_ops.describe; tests that plan for a device that this machine lacks. */
#ifndef BACKEND_RULES_H
#define BACKEND_RULES_H
#include "plan/select.h"

extern const struct select_rules host_rules, onednn_rules;
extern const struct device_speed host_speed, onednn_amx_speed, onednn_avx512_speed, onednn_avx2_speed;
extern const struct select_rules cuda_rules;             /* where cuda is built */
extern const struct device_speed cuda_speed;

/* Of any CPU core: the members of struct device_speed other than its products and passes. Rounded, from profiles of
 * ResNet-50 and of fully connected networks. */
#define HOST_SPEED \
    .weights = 10.0, .values = 1.2, .norm_back = 1.3, .channel_ns = 30.0, .point_times = 5, .latency_ns = 9000, \
    .transfer = 4, .busy_ns_per_byte = 0.2

/* select_rules.frozen of backends in host memory. */
#define HOST_FROZEN (1u << BF16 | 1u << F16 | 1u << I8)
/* Workspace of kernels in host memory: for every gradient before it is added, for weights that are widened, and for all
 * values to convert layouts; plus `beside` bytes for the kernels' own use. */
void host_sizes(const struct selection *s, struct group *k, size_t beside);

#endif
