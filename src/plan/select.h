/* Kernel selection. From the UNCUT graph and a description of the device it decides which kernel serves which nodes, in
 * which layout, and what the kernel keeps.
 *
 * Pure, and before partition: stages are cut only between groups, and border tensors keep layout and type, so no cut
 * can change a bit. A backend describes what depends on it (select_rules in plan/device.h); operators are known by
 * their traits (model/op.h). Backends implement the selected groups (backend/be.h). A new kind of group is a pattern
 * of a backend's kernel row (plan/kernel_row.h). */
#ifndef PLAN_SELECT_H
#define PLAN_SELECT_H
#include "model/graph.h"
#include "model/op.h"
#include "plan/device.h"
#include "plan/kernel_row.h"

/* One or more nodes that one kernel serves. Inputs, output, parameters are those of the fused whole. */
struct group {
    const struct pattern *pattern;                       /* of a chain of nodes; NULL: one node */
    int n_nodes, node[MAX_GROUP];                        /* ascending; the last one's output is the group's output */
    /* the kernel of each phase, NULL: the phase has no call, or the device has no rows */
    const struct kernel_row *row[PH_COUNT];
    /* tensors read from outside, in kernel order (bn_add_relu: bn input, then the other summand) */
    int n_in, in[MAX_IN];
    int n_out; union { int out, outs[MAX_OUT]; };        /* out: the first, and the only one of a chain */
    int n_param, param[MAX_PARAM], use[MAX_PARAM];       /* graph->param, and which of its uses this is */
    uint32_t need_b, need_w;                             /* NEED_* over this group's inputs, output, saved */
    uint32_t grad_in, pgrad_in_b, pgrad_in_w;            /* op_grad_in and its like, reduced by needs_grad and frozen */
    bool is_loss, has_stats;
    bool fixed;                                          /* node.fixed of the first: it uses evaluation's kernels */
    /* input whose gradient may overwrite the output's gradient, -1: none */
    int grad_over;
    /* kept per micro-batch: fixed part, and part per sample (saved_of()) */
    size_t saved_bytes[2];
    /* worst case over forward and both backwards: fixed, and per sample */
    size_t workspace_bytes[2];
    /* of the fixed part: what a library's kernel may use on a GPU; equal for equal layers */
    size_t library_bytes;
    /* What its rows are, and why, if they only replace better kernels; for people. NULL: they are made for it. */
    const char *fallback;
    bool slow;                                           /* kernel_row.slow of one of its rows */
    double share;                                        /* share of its products' operations that kernels do; 0: all */
    /* a second copy of the weights in another layout, refreshed after each optimizer step */
    size_t packed_bytes;
    bool packed_apart;                                   /* it is padded: the optimizer's pass does not make it */
};

struct selection {
    struct arena *mem;
    const struct graph *g;
    struct device dev;
    /* of the device, those that its processor can run, in the order in which they are tried */
    const struct kernel_row **row; int n_rows;
    /* in execution order: by last node; every node is in exactly one */
    struct group *group; int n_groups;
    /* of each tensor and each parameter, as stored: the graph's F32 may be BF16 here; trained weights are F32. Blocked
     * weights have the backend's blocked form, with the same byte count. */
    struct format *tensor, *param;
    int *group_of;                                       /* of each node */
    int max_samples;                                     /* largest micro-batch it was made for */
};

/* The row that is tried after this one, or NULL, the first that does not refuse this group in this phase; NULL: none.
 * *why: the last reason of rows between them that refuse; unchanged if there is none. why may be NULL. */
const struct kernel_row *select_row(const struct selection *s, const struct group *k, enum phase ph,
                                    const struct kernel_row *after, const char **why);
/* Is the tensor one of its outputs? */
static inline bool group_makes(const struct group *k, int tensor)
{
    for (int i = 0; i < k->n_out; i++) if (k->outs[i] == tensor) return true;
    return false;
}
/* Does the phase of this group have a call? */
bool group_has_phase(const struct group *k, enum phase ph);
/* Sets fallback and slow of a group from its rows and from the reason of each phase (NULL: none is known). */
void group_explain(struct selection *s, struct group *k, const char *const why[PH_COUNT]);
/* 78 when an operator has no kernel on that device (names the node). */
struct selection *select_make(const struct graph *g, const struct device *dev, int max_samples, struct err *e);
void select_free(struct selection *s);
int select_channels(const struct selection *s, int tensor);            /* as stored: those of its shape, or padded */
/* Does the row compute on copies in F32, because it does not take a type in which the group's tensors are stored? */
bool select_widens(const struct selection *s, const struct kernel_row *r, const struct group *k);
/* Does it compute on copies in another layout? */
bool select_relays(const struct selection *s, const struct kernel_row *r, const struct group *k);
size_t select_sample_bytes(const struct selection *s, int tensor);   /* one sample of a tensor, as stored */
bool select_pads(const struct selection *s, const struct group *k);  /* its first input is stored in more channels */
/* Is a parameter stored in another type than the graph has? Of a group: of one of its parameters? */
bool select_narrows(const struct selection *s, int param);
bool group_narrows(const struct selection *s, const struct group *k);
size_t select_param_bytes(const struct selection *s, int param);     /* as stored, whole lines of 64 bytes */
/* Host bytes of a graph input's largest micro-batch. */
size_t select_load_bytes(const struct selection *s, int tensor);
size_t group_saved(const struct group *k, int samples);
size_t group_workspace(const struct group *k, int samples);
void select_print(const struct selection *s, struct text *out);  /* one line a group: part of the plan's text */
const char *select_precision(const struct device *d);    /* "fp32", "fp32 with Winograd" */
/* The numerics line: runs with equal lines have equal bits. It has device, ISA, library, precision, hash of layouts,
 * threads, micro-batch size and blocks of micro-batches; not the number of pipelines that share the blocks. */
void numerics_line(const struct selection *s, const struct conf *c, struct text *out);

#endif
