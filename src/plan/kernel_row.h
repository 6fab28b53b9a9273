/* Kernel rows: which kernels a device has, and what each serves. A file of a backend has the code of a kernel and its
 * rows; select_rules.rows lists the files' tables. Selection (select.c) tries the rows of a group in the order of their
 * cost. It takes the first that does not refuse, and keeps the reasons of those before it for the plan's text.
 *
 * Rows are constants. What they compute about a selection is pure, and may be called on any thread. */
#ifndef PLAN_KERNEL_ROW_H
#define PLAN_KERNEL_ROW_H
#include "base/err.h"
#include "model/op.h"
#include "plan/act.h"
#include "plan/device.h"

struct be; struct be_kernel; struct be_call;             /* of the backend that has the row */

enum { MAX_GROUP = 3 };                                  /* nodes of a group */

/* What a kernel computes: a node, or a chain of nodes of which each is the only reader of the one before it. A step is
 * the operator with this name; or, without a name, any of this category; or, with OP_OTHER, any at all. In a chain it
 * has `inputs` inputs, the first of which comes from the step before. */
struct pattern_step { const char *op; enum op_category category; int inputs; };
struct pattern {
    const char *text;                                    /* of a chain, in the plan's text: "bn+relu" */
    int n; struct pattern_step step[MAX_GROUP];
    uint32_t need_b;                                     /* of a chain: what its backward reads, NEED_* */
    bool (*fits)(const struct graph *g, const int *node);    /* more that the chain's nodes must be; NULL: nothing */
};
/* Batch norm, then ReLU, or a sum with another tensor and ReLU. The output shows where gradients pass. */
extern const struct pattern pattern_bn_relu, pattern_bn_add_relu;
/* A function of one value, which its input explains, times another tensor of the same size: gated units. */
extern const struct pattern pattern_gate;
#define PATTERN_OP(word) &(const struct pattern){.n = 1, .step = {{.op = (word)}}}
#define PATTERN_CATEGORY(which) &(const struct pattern){.n = 1, .step = {{.category = (which)}}}
#define PATTERN_ANY &(const struct pattern){.n = 1}

#define ROW_PHASE(ph) (1u << (ph))
#define ROW_LAYOUT(l) (1u << (l))
#define ROW_ANY_LAYOUT UINT32_MAX
#define ROW_BACKWARD (ROW_PHASE(PH_BWD_DATA) | ROW_PHASE(PH_BWD_WEIGHTS))

struct kernel_row {
    const char *name;                                    /* for people: "winograd"; NULL: the end of the table */
    const struct pattern *pattern;
    uint32_t phases;                                     /* ROW_PHASE of those it serves; 0: all */
    uint32_t isa;                                        /* ISA_*: the processor needs one of these; 0: any */
    uint32_t types;                                      /* TAKES of the stored activations; 0: F32 only */
    uint32_t layouts;                                    /* ROW_LAYOUT of the tensors; 0: select_rules.layouts */
    bool same_layout;                                    /* all inputs and the output must have one layout */
    bool pointwise;                                      /* element by element, on tensors of one size and layout */
    /* Why it does not serve this group in this phase, to follow a colon; NULL: it does; "": the group is another row's,
     * which is no reason for people. NULL: it takes all. */
    const char *(*refuses)(const struct selection *s, const struct group *k, enum phase ph);
    /* Roughly how long it takes, compared with the best kernel; 0: 1. Rows are tried in this order, equal ones as
     * listed. */
    double cost;
    /* Share of the nominal operations that it does, for estimates. NULL: all */
    double (*share)(const struct selection *s, const struct group *k);
    /* Layout that it gives the output; those of the inputs are known. Of a parameter at a node's slot. The first row
     * with an answer decides, whether it takes the group or not. LAYOUT_NONE: no answer. NULL: never one */
    enum layout (*layout)(const struct selection *s, const struct node *n);
    enum layout (*param_layout)(const struct selection *s, const struct node *n, int slot);
    /* bytes for its own use (select_rules.sizes adds copies); of packed weights. NULL: the device's least; none */
    size_t (*workspace)(const struct selection *s, const struct group *k);
    size_t (*packed)(const struct selection *s, const struct group *k);
    int grad_over;                                       /* 1 + the input whose gradient may overwrite the output's */
    /* What it is, if it only replaces a kernel that there should be: "a plain loop". NULL: it is made for this. why:
     * the reason if no other row refused. slow: it takes far longer than its work explains. */
    const char *fallback, *why;
    bool slow;
    bool library;                                        /* calls a GPU library for products of its first parameter */
    bool stored;                                         /* reads weights as they are stored, of any type */
    bool late;                                           /* in training its backward pass makes the output, too */
    /* Makes the kernel. NULL with E_CONF and a reason: it refuses after all, and the next row follows. asks: it may do
     * so because a library decides; selection then tries it where it can. */
    bool asks;
    struct be_kernel *(*make)(struct be *b, const struct be_kernel *like, struct err *e);
    /* what the kernel runs, unless `make` sets something else; without `make` it has no data of its own */
    int (*run)(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e);
    /* rebuilds the packed weights of a phase that this row serves (be_ops.pack); called in descending order of phases,
     * so the forward pass's place may be used before. NULL: the backend's usual form */
    int (*pack)(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed, struct err *e);
};

#endif
