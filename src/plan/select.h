/* Kernel selection: from the UNCUT graph and a description of the device, which kernel serves which nodes, in which
 * layout, and what it keeps.
 *
 * Pure, and before partition: stages are cut only between groups, and border tensors keep layout and type, so no cut
 * can change a bit. What depends on a backend, it says itself (select_rules in plan/device.h), and operators are known
 * by their traits (model/op.h). Backends implement what is selected here (backend/be.h); a new kind of group is a
 * pattern in select.c and a kernel in a backend. */
#ifndef PLAN_SELECT_H
#define PLAN_SELECT_H
#include "model/graph.h"
#include "model/op.h"
#include "plan/device.h"

enum group_kind { GROUP_NODE, GROUP_BN_RELU, GROUP_BN_ADD_RELU };  /* one operator; fused: nodes bn, [add,] relu */
enum { MAX_GROUP = 3 };

/* One or more nodes that one kernel serves. Inputs, output, parameters are those of the fused whole. */
struct group {
    enum group_kind kind;
    int n_nodes, node[MAX_GROUP];                        /* ascending; the last one's output is the group's */
    /* tensors read from outside, in kernel order (bn_add_relu: bn input, then the other summand) */
    int n_in, in[MAX_IN];
    int out;
    int n_param, param[MAX_PARAM], use[MAX_PARAM];       /* graph->param and which of its uses this is */
    uint32_t need_b, need_w;                             /* NEED_* over this group's inputs, output, saved */
    uint32_t grad_in, pgrad_in_b, pgrad_in_w;            /* as in op_kind, already reduced by needs_grad and frozen */
    bool is_loss, has_stats;
    bool fixed;                                          /* node.fixed of the first: its kernels are evaluation's */
    /* input whose gradient may be written over the output's, -1: none */
    int grad_over;
    /* kept per micro-batch: fixed part, and part per sample (saved_of()) */
    size_t saved_bytes[2];
    /* worst case over forward and both backwards: fixed, and per sample */
    size_t workspace_bytes[2];
    /* of the fixed part: what a library's kernel may use on a GPU; equal for equal layers */
    size_t library_bytes;
    /* What serves this group for want of a kernel made for it, and why, for people; NULL: it has one. slow: that takes
     * far longer than its work explains. */
    const char *fallback;
    bool slow;
    double share;                                        /* of its products' operations that its kernels make; 0: all */
    /* a second copy of the weights in another layout, refreshed after each optimizer step */
    size_t packed_bytes;
    bool packed_apart;                                   /* that is padded: an optimizer's pass does not make it */
};

struct selection {
    struct arena *mem;
    const struct graph *g;
    struct device dev;
    /* in execution order: by last node; every node is in exactly one */
    struct group *group; int n_groups;
    enum layout *layout;                                 /* of each tensor */
    /* of each tensor, as stored: the graph's F32 may be BF16 here */
    enum dtype *type;
    int *channels;                                       /* of each tensor, as stored: those of its shape, or padded */
    /* of each weight: LAYOUT_PLAIN, or BLK: backend's blocked form of the same byte count */
    enum layout *param_layout;
    enum dtype *param_type;                              /* of each parameter, as stored; what is trained as F32 */
    int *group_of;                                       /* of each node */
    int max_samples;                                     /* largest micro-batch it was made for */
};

/* 78 when an operator has no kernel on that device (names the node). */
struct selection *select_make(const struct graph *g, const struct device *dev, int max_samples, struct err *e);
void select_free(struct selection *s);
size_t select_sample_bytes(const struct selection *s, int tensor);   /* one sample of a tensor, as stored */
bool select_pads(const struct selection *s, const struct group *k);  /* its first input is stored in more channels */
size_t select_param_bytes(const struct selection *s, int param);     /* as stored, whole lines of 64 bytes */
/* Host bytes of the largest micro-batch of a graph input. */
size_t select_load_bytes(const struct selection *s, int tensor);
size_t group_saved(const struct group *k, int samples);
size_t group_workspace(const struct group *k, int samples);
void select_print(const struct selection *s, struct text *out);  /* one line a group: part of the plan's text */
/* The numerics line (DESIGN: same bits for equal lines): device, ISA, library, precision, layouts' hash, threads,
 * micro-batch size, blocks of micro-batches; not how many replicas share these. */
void numerics_line(const struct selection *s, const struct conf *c, struct text *out);

#endif
