/* The device as a value: what kernel selection and cost estimates know of it. A backend fills it in (be_ops.describe);
 * nobody below the daemon asks the machine. */
#ifndef PLAN_DEVICE_H
#define PLAN_DEVICE_H
#include <stdbool.h>
#include <stddef.h>

/* Row-major; channels in blocks: nC..8c, nC..16c (only where channels % block == 0); channels last: n..C */
enum layout { LAYOUT_PLAIN, LAYOUT_BLK8, LAYOUT_BLK16, LAYOUT_LAST };

/* fp32: everything in fp32. tf32: products of convolutions and matrices by TF32. bf16: activations and their gradients
 * are stored in bfloat16, weights, their gradients and all sums stay fp32. */
enum precision { FP32, TF32, BFLOAT16, PRECISIONS };
extern const char *const precision_name[PRECISIONS];     /* as train.precision spells them */

struct selection; struct group; struct op_kind;

/* What a backend decides of a selection: functions of what is selected so far, in the order in which they are asked.
 * They are pure but for the last, which changes texts and estimates only. Only `sizes` must be there. */
struct select_rules {
    const char *hardware;                                /* "cpu" "gpu": the numerics line's word */
    bool (*has)(const struct op_kind *op);               /* kernels for that operator? NULL: for all */
    /* of a tensor, those of the inputs of whoever makes it being known. NULL: all are plain */
    enum layout (*layout)(const struct selection *s, int tensor);
    /* channels to which a tensor is padded, layouts and types being known; 0: it is not. NULL: none is */
    int (*padded)(const struct selection *s, int tensor);
    /* of the parameter at a node's slot. NULL: all are plain */
    enum layout (*param_layout)(const struct selection *s, int node, int slot);
    /* in which type a frozen parameter is stored: enum dtype. NULL: in its own */
    int (*frozen_type)(const struct selection *s, int param);
    void (*sizes)(const struct selection *s, struct group *k);   /* workspace, library and packed bytes */
    /* group.stand_in and slow of all groups; may ask its library. NULL: there are none */
    void (*fallbacks)(struct selection *s);
};

/* What a device reaches, for estimates, in operations and bytes a nanosecond; a rate of 0: costs nothing worth
 * counting. Only ratios matter to a plan. */
struct device_speed {
    double flops[PRECISIONS];                            /* of convolutions and products */
    /* passes over activations that are no products, while a micro-batch's fit into near caches, far ones, and none */
    double near, mid, far;
    double weights;                                      /* read, or written, once a micro-batch */
    double values;                                       /* passes with random numbers or exponentials */
    double load;                                         /* of samples, where they enter the device */
    double norm_back;                                    /* a batch norm's input gradient takes so many passes */
    double channel_ns;                                   /* of a batch norm, beside its values */
    double launch_ns;                                    /* of every kernel, a sample */
    double point_times;                                  /* of a convolution whose output is one point a channel */
    bool padding;                                        /* is multiplied, too, instead of being left out */
    bool steady;                                         /* each sample takes as long, however many there are */
    double threads;                                      /* what a further thread adds to products, of the first's */
    /* transfers: from a start to the first byte, bytes a ns, ns that a rank's thread gives to each byte */
    double latency_ns, transfer, busy_ns_per_byte;
};

struct device {
    char backend[16];                                    /* "reference" "onednn" "null" */
    char isa[80];                                        /* effective: "avx512" "avx2" "generic" "NVIDIA H200 sm_90" */
    char library[128];                                   /* versions: "oneDNN 2.6.3" */
    /* what else may change bits, but costs hardly: "driver 13.0, NVRTC 13.0"; "": nothing */
    char beside[96];
    const struct select_rules *rules;                    /* both: backend/rules.h */
    const struct device_speed *speed;
    int block;                                           /* channel block of activations: 16, 8, or 1: plain */
    bool fuse_bn;                                        /* batch norm + [add +] ReLU is one kernel */
    bool precise[PRECISIONS];                            /* which precisions it has */
    enum precision precision;                            /* the one selected for */
    /* places beside the slots for each value that is loaded, on its way to a device; 0: none */
    int load_ways;
    /* planned for where there is none: isa and library are unknown, "" */
    bool supposed;
    /* table of measured library kernels (run.kernel_table); NULL: chosen by rules */
    const char *kernels;
    /* measuring such a table tries kernels that are compiled when they are made, too */
    bool try_compiled;
    bool try_all;                                        /* and all candidates instead of the most promising */
    bool overlap_wgrad;                                  /* a joined backward pass is recorded in two branches */
    int threads;                                         /* per rank */
};

#endif
