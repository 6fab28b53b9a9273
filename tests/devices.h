/* Devices and optimizers as values, independent of this machine: as in the reference backend, and as in oneDNN with
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
                                          .features = ISA_AVX2 | ISA_AVX512,
                                          .threads = 1};

/* The buffers of an optimizer with 0 to 2 buffers per weight. */
static inline struct state_buffers rig_buffers(int n)
{
    static const char *const name[] = {"first", "second"};
    return (struct state_buffers){n, name};
}

#endif
