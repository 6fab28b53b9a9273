/* Devices and optimizers as values, whatever this machine is: as the reference backend has it, and as oneDNN with
 * AVX-512. */
#ifndef TESTS_DEVICES_H
#define TESTS_DEVICES_H
#include "backend/rules.h"
#include "model/op.h"

static const struct device rig_plain = {.backend = "reference",
                                        .isa = "generic",
                                        .library = "plain C",
                                        .rules = &host_rules,
                                        .speed = &host_speed,
                                        .block = 1,
                                        .threads = 1};
static const struct device rig_blocked = {.backend = "onednn",
                                          .isa = "avx512",
                                          .library = "oneDNN 2.6.3",
                                          .rules = &onednn_rules,
                                          .speed = &onednn_avx512_speed,
                                          .block = 16,
                                          .fuse_bn = true,
                                          .threads = 1};

/* What an optimizer with 0 to 2 buffers a weight keeps. */
static inline struct state_buffers rig_buffers(int n)
{
    static const char *const name[] = {"first", "second"};
    return (struct state_buffers){n, name};
}

#endif
