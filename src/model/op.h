/* The interface of an operator: one file ops/op_NAME.c with one `const struct op_kind op_NAME`, and its name in OPS of
 * Makefile.am.
 *
 * The reference kernels are the oracle: plain C, plain row-major layout, [sample][shape]. They are pure (same inputs,
 * same bits), always overwrite their outputs, and own no memory. Any thread. */
#ifndef MODEL_OP_H
#define MODEL_OP_H
#include <string.h>
#include "model/graph.h"

/* A_INTS: one value for all spatial dimensions, or one each: 3 or 3x5x5. A_LIST: any number, 16x16x32. A_WORD: one of
 * `words`; WORD=yes is another way to write it. */
enum attr_type { A_INT, A_INTS, A_REAL, A_BOOL, A_LIST, A_WORD };
/* like: an earlier attribute (integers) whose value is the default; def is then ignored. */
struct attr_kind {
    const char *name; enum attr_type type; double def; double lo, hi; const char *text, *like;
    const char *words;                                  /* of A_WORD: "exact tanh"; def: the number of one */
};

enum need { NEED_OUT = 1 << 16, NEED_SAVED = 1 << 17 };  /* bits 0..7: inputs */

/* Values that change between steps or micro-batches reach kernels through this block in device memory. inv_weight seeds
 * the loss gradient (R1): 1 / sum of the weights of the batch's samples, or their number if each weighs 1. step: of the
 * run, from 1. update: of the optimizer's state, from 1; skipped steps do not count. hyper: the optimizer's own numbers
 * (optim/rule.h). fresh: the fraction of a new weight in its average. */
enum { MAX_HYPER = 8 };
struct be_block {
    double inv_weight;
    double learning_rate, clip_coef, clip_value, fresh;
    uint64_t seed, step, update;
    double hyper[MAX_HYPER];
};

/* One weight of an optimizer step. state: consecutive optimizer buffers (optim_stride), NULL: none. packed: a group's
 * packed weights, which the step packs again (only with be_ops.derives), NULL: none. average: the weight's average, to
 * be updated, NULL: none. g NULL: update only the average; another rank updates the weight. sums: memory for the sums
 * of a rule with optim_kind.whole (optim/rule.h), else NULL. */
struct be_weight {
    float *w; const float *g; float *state, *average; size_t n; double lr_factor, decay_factor; void *packed;
    double *sums;
};

/* Stored for each trained weight: the names of the optimizer's buffers, and whether there is an average (train.ema).
 * fixed: nothing is trained, so there are none of these and no gradients. whole: a step needs all of a weight's buffers
 * at once. in_file: the buffers lie in a file (plan/offload.c). */
struct state_buffers { int n; const char *const *name; bool average, fixed, whole, in_file; };

/* Arguments of one call. Pointers the call does not use are NULL. */
struct op_call {
    const struct graph *g;
    const struct node *node;
    int n;                                              /* samples in this micro-batch */
    bool train;
    const struct be_block *block;
    const int64_t *sample;                              /* n global sample ids, for dropout */
    const void *in[MAX_IN];
    union { void *out, *outs[MAX_OUT]; };
    /* op_kind.saved_bytes: stored from forward to backward (and to the optimizer: stats) */
    void *saved;
    /* gradients of outs; of several, NULL where the loss does not depend on one */
    union { const void *gout, *gouts[MAX_OUT]; };
    void *gin[MAX_IN];                                  /* gradients of inputs; NULL: not needed */
    void *param[MAX_PARAM];
    void *pgrad[MAX_PARAM];                             /* gradients of parameters; NULL: not needed */
};

/* Arguments of op_kind.stats. deferred: once for all micro-batches together, not for each. saved: of n_mb micro-batches
 * of ns[i] samples, ascending. */
struct op_stats {
    const struct graph *g;
    const struct node *node;
    bool deferred;
    int n_mb;
    const void *const *saved;
    const int *ns;
    void *const *param;
};

/* Output of op_kind.infer, except in_type, the types of the inputs. Initially out is the shape of the first input, and
 * all else is 0: F32, PARAM_WEIGHT, INIT_ZERO. n_out 0: one output. A parameter is called "NODE.suffix". Weights have
 * slots 0 and 1. */
struct infer_param {
    const char *suffix;
    struct shape shape;
    enum param_init init; double scale;
    enum param_kind kind;
    enum dtype type;
    bool turned;                                        /* struct param */
};
struct infer {
    enum dtype in_type[MAX_IN];
    int n_out; union { struct shape out, outs[MAX_OUT]; }; union { enum dtype type, types[MAX_OUT]; };
    int n_param; struct infer_param param[MAX_PARAM];
};

/* The kind of computation, for code that knows no operator by name: kernel selection, cost estimates, backends. */
enum op_category {
    OP_OTHER,                                            /* none of the others */
    OP_CONV,      /* products over windows; attributes kernel, stride, padding, dilation, groups */
    OP_CONV_TRANSPOSED,  /* the input gradient of an OP_CONV as an operator: the same attributes and weights */
    OP_MATRIX,                                           /* product with a matrix */
    OP_NORM,                                             /* normalises channels by mean and variance */
    OP_NORM_SAMPLES,                                     /* normalises channels or groups of them, per sample */
    OP_REPEAT,                                           /* repeats its channels: its output may have any layout */
    OP_ADD,                                              /* of inputs with the same shape */
    OP_RELU,                                             /* max(x, 0); its output shows where gradients pass */
    OP_UNARY,                                            /* a function of one value, given by op_kind.unary */
    OP_ATTENTION,                                        /* products of all positions with all; none are stored */
};
/* The output of a loss or score operator is a vector of F64 per sample. A row is a mean over samples: the sum of one
 * column divided by the sum of another, or, with denominator -1, by the sum of the samples' weights
 * (ds_kind.weight). */
struct score_row { const char *name; int numerator, denominator; };

struct op_kind {
    const char *name, *text;                            /* as in graph text; one line for the manual */
    enum op_category category;
    int unary;                                          /* enum unary (ops/unary.h) */
    /* works channel by channel and keeps space: the output may have the inputs' layout in memory */
    bool keeps_layout;
    bool draws;                                         /* uses random numbers */
    int n_in;                                           /* inputs; 0: one */
    int max_in;                                         /* maximum of inputs if more; 0: no more */
    /* per input, the permitted types, TAKES(F32) | TAKES(I32); 0: only F32. The graph refuses others. */
    uint32_t takes[MAX_IN];
    const struct attr_kind *attr;                       /* ends with name NULL */
    /* Infers type and shape of the output and parameters, and checks them. The error text names the problem ("kernel 7
     * is larger than the padded input 3"); the caller adds the node. NULL: the output is F32 with the first input's
     * shape. */
    int (*infer)(const struct node *n, const struct shape *const *in, struct infer *out, struct err *e);
    /* For an integer input: its values are 0 to the result - 1, and data sets refuse others; NULL: no limit. */
    int64_t (*range)(const struct graph *g, const struct node *n, int in);
    /* For a loss that is a mean over labels, not over samples: the label that does not count, below 0. A sample's
     * weight (ds_kind.weight) must then be its number of labels that count. NULL: a sample counts by its own weight */
    int64_t (*ignored)(const struct graph *g, const struct node *n);
    uint64_t (*flops)(const struct graph *g, const struct node *n);       /* forward, one sample; NULL: 0 */
    size_t (*saved_bytes)(const struct graph *g, const struct node *n, int samples);  /* NULL: none */
    /* what backward-data / backward-weights read besides gout and parameters */
    uint32_t need_b, need_w;
    uint32_t pgrad_in_b;                                /* slots of weights whose gradient is computed in B, not in W */
    /* In training, backward data writes the outputs, and forward may leave them: only scores are made of them, after
     * the step. */
    bool outs_in_b;
    bool is_loss;                                       /* needs no gout: block->inv_weight seeds the backward pass */
    /* For a loss that takes the output as classes: their probabilities; NULL: the output is the result itself. */
    void (*probabilities)(const float *output, int64_t n, double *p);
    /* For a loss on the sigmoid of a single output: class 1 begins at 0, not at 1/2. */
    bool logits;
    /* ends with name NULL. A loss minimises its first row. Without is_loss this is a score, without gradients. NULL:
     * neither */
    const struct score_row *rows;
    /* number of rows of this node; NULL: all */
    int (*n_rows)(const struct graph *g, const struct node *n);
    void (*forward)(const struct op_call *c);
    void (*backward_data)(const struct op_call *c);     /* writes gin (and pgrad of pgrad_in_b); NULL: none */
    void (*backward_weights)(const struct op_call *c);  /* writes pgrad of all other weights; NULL: none */
    /* Applies micro-batches' statistics (saved) to the persistent ones in the optimizer action; NULL: none. */
    void (*stats)(const struct op_stats *a);
    /* for tests, NULL-terminated: inputs and attributes, "4x5x5 channels=3 kernel=3", "6 + 6", "5 + class", "5 +
     * vector" (a target like the input before it), "6 + =0" (input 0 again: if several inputs have gradients, each pair
     * of inputs is one tensor in some example) */
    const char *const *examples;
};

/* ---- for operators ----------------------------------------------------------------------------------------------- */

/* A tensor of n samples, with c channels of `points` points. */
struct extent { int64_t n, c, points; };
static inline struct extent extent_of(const struct graph *g, int tensor, int64_t n)
{
    const struct shape *s = &g->tensor[tensor].shape;
    return (struct extent){n, s->d[0], shape_count(s) / s->d[0]};
}
static inline struct extent extent_in(const struct op_call *c) { return extent_of(c->g, c->node->in[0], c->n); }
static inline struct extent extent_out(const struct op_call *c) { return extent_of(c->g, c->node->out, c->n); }
/* Loops over each index `at` of a channel: samples ascending, then points. */
#define CHANNEL_EACH(x, channel, at) \
    for (int64_t at##_n = 0; at##_n < (x).n; at##_n++) \
        for (int64_t at = (at##_n * (x).c + (channel)) * (x).points, at##_end = at + (x).points; at < at##_end; at++)
static inline int64_t op_count(const struct op_call *c)  /* elements of the output, over all samples */
{
    return c->n * shape_count(&c->g->tensor[c->node->out].shape);
}

/* ---- for all code ------------------------------------------------------------------------------------------------ */

#define TAKES(type) (1u << (type))
static inline uint32_t op_takes(const struct op_kind *k, int in) { return k->takes[in] ? k->takes[in] : TAKES(F32); }
static inline int op_min_in(const struct op_kind *k) { return k->n_in ? k->n_in : 1; }
static inline int op_max_in(const struct op_kind *k) { return k->max_in ? k->max_in : op_min_in(k); }
/* Inputs with a gradient: those that accept only F32, unlike labels and indices. */
static inline uint32_t op_grad_in(const struct op_kind *k)
{
    uint32_t set = 0;
    for (int i = 0; k->backward_data && i < op_max_in(k); i++) set |= (uint32_t)(op_takes(k, i) == TAKES(F32)) << i;
    return set;
}
/* Slots of weights whose gradient is computed in W. */
static inline uint32_t op_pgrad_in_w(const struct op_kind *k) { return k->backward_weights ? 3 & ~k->pgrad_in_b : 0; }
/* Calls op_kind.infer for a node with inputs in `all`. */
int op_infer(const struct node *n, const struct tensor *all, struct infer *f, struct err *e);

const struct op_kind *op_find(const char *name);
/* Number of rows of a node; 0: not a loss or score. */
static inline int op_rows(const struct graph *g, const struct node *n)
{
    int rows = 0;
    if (n->op->n_rows) return n->op->n_rows(g, n);
    while (n->op->rows && n->op->rows[rows].name) rows++;
    return rows;
}
static inline bool op_has_windows(const struct op_kind *k)
{
    return k->category == OP_CONV || k->category == OP_CONV_TRANSPOSED;
}
/* A product of weights, at slot 0, and an input. */
static inline bool op_is_product(const struct op_kind *k) { return op_has_windows(k) || k->category == OP_MATRIX; }
extern const struct op_kind *const op_list[];           /* NULL-terminated, order of OPS */
float unary_attr(const struct node *n);                 /* OP_UNARY: the function's second argument */
int op_attr(const struct op_kind *k, const char *name); /* index of an attribute; aborts on an unknown name: a bug */
static inline const struct attr_value *node_attr(const struct node *n, const char *name)   /* NULL: none */
{
    for (const struct attr_kind *k = n->op->attr; k && k->name; k++)
        if (!strcmp(k->name, name)) return &n->attr[k - n->op->attr];
    return NULL;
}

#endif
