/* The device as a value: the properties that kernel selection and cost estimates use. A backend fills it in
 * (be_ops.describe); no code of plan queries the machine. */
#ifndef PLAN_DEVICE_H
#define PLAN_DEVICE_H
#include "plan/format.h"

/* Instruction sets that kernels are made for; device.features has all that a processor has. */
enum isa { ISA_AVX2 = 1, ISA_AVX512 = 2 };

/* fp32: everything in fp32. tf32: convolutions and matrix products in TF32. bf16: activations and their gradients are
 * stored in bfloat16; weights, their gradients and all sums stay in fp32. */
enum precision { FP32, TF32, BFLOAT16, PRECISIONS };
extern const char *const precision_name[PRECISIONS];     /* as train.precision spells them */

struct selection; struct group; struct kernel_row;

/* What a backend decides about a selection. Each function sees what is selected so far; they are called in this order.
 * All are pure except the last, which changes only rows and texts. Only `sizes` is required. */
struct select_rules {
    const char *hardware;                                /* "cpu" or "gpu", for the numerics line */
    /* its kernels: tables (plan/kernel_row.h), ends with NULL. NULL: it serves every operator, one by one */
    const struct kernel_row *const *rows;
    /* layout of a tensor where no row has an answer; the layouts of its producer's inputs are known. NULL: plain */
    enum layout (*layout)(const struct selection *s, int tensor);
    /* channels to which a tensor is padded, or 0; layouts and types are known. NULL: none is padded */
    int (*padded)(const struct selection *s, int tensor);
    uint32_t layouts;                                    /* ROW_LAYOUT of tensors that a row takes by default; 0: all */
    uint32_t relaid;                                     /* ROW_LAYOUT of which such rows get copies */
    uint32_t widened;                                    /* 1 << dtype: stored types of which F32 rows get copies */
    uint32_t frozen;                                     /* 1 << dtype: types that frozen weights can be stored in */
    /* may this frozen weight be? Layouts and types of tensors are known. NULL: all may */
    bool (*narrow)(const struct selection *s, int param);
    /* workspace and library bytes; beside: what the group's rows want for themselves */
    void (*sizes)(const struct selection *s, struct group *k, size_t beside);
    /* asks libraries which of the selected rows they refuse, and selects others in their place. NULL: none can */
    void (*ask)(struct selection *s);
};

/* What a device reaches, for estimates, in operations and bytes a nanosecond. A rate of 0: the cost is negligible. Only
 * ratios matter to a plan. */
struct device_speed {
    double flops[PRECISIONS];                            /* of convolutions and matrix products */
    /* passes over activations without products, while a micro-batch fits into near caches, into far ones, into none */
    double near, mid, far;
    double weights;                                      /* weights are read, or written, once a micro-batch */
    double values;                                       /* passes with random numbers or exponentials */
    double load;                                         /* of samples, into the device */
    double norm_back;                                    /* passes that a batch norm's input gradient takes */
    double channel_ns;                                   /* per channel of a batch norm, besides its values */
    double launch_ns;                                    /* of every kernel, per sample */
    double point_times;                                  /* factor for a convolution with one output point a channel */
    bool padding;                                        /* padding is multiplied, too */
    bool steady;                                         /* each sample takes the same time, whatever their number */
    double threads;                                      /* what each further thread adds to products; the first: 1 */
    /* transfers: time to the first byte, bytes a ns, ns that a rank's thread spends on each byte */
    double latency_ns, transfer, busy_ns_per_byte;
};

struct device {
    char backend[16];                                    /* "reference" "onednn" "null" */
    char isa[80];                                        /* effective: "avx512" "avx2" "generic" "NVIDIA H200 sm_90" */
    char library[128];                                   /* versions: "oneDNN 2.6.3" */
    /* what else may change bits, but hardly changes costs: "driver 13.0, NVRTC 13.0"; "": nothing */
    char beside[96];
    const struct select_rules *rules;                    /* rules and speed: see backend/rules.h */
    const struct device_speed *speed;
    int block;                                           /* channel block of activations: 16, 8, or 1: plain */
    unsigned features;                                   /* ISA_*: of a processor */
    bool precise[PRECISIONS];                            /* the precisions that it supports */
    const char *bf16;                                    /* a processor's instructions for bf16; NULL: none to use */
    bool bf16_slow;                                      /* it has some, but computes faster in fp32 */
    enum precision precision;                            /* the selected precision */
    bool winograd;                                       /* train.winograd: also for pictures, and on any threads */
    enum dtype frozen;                                   /* how it stores frozen weights of two dimensions and more */
    /* staging places beside the slots, for each value that is loaded on its way to a device; 0: none */
    int load_ways;
    /* a device to plan for that does not exist here: isa and library are unknown, "" */
    bool supposed;
    /* table of measured library kernels (run.kernel_table); NULL: chosen by rules */
    const char *kernels;
    /* measuring such a table also tries kernels that are compiled at run time */
    bool try_compiled;
    bool try_all;                                        /* measure all candidates instead of the most promising */
    int threads;                                         /* per rank */
};

#endif
