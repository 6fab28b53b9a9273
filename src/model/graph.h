/* The graph of a network: nodes in topological order, tensors, and the registry of persistent tensors (parameters and
 * statistics).
 *
 * Open and frozen: after graph_finish any code may read it, and none writes it. Pure: two builds from the same
 * configuration are equal. The graph does not know ranks, stages, layouts or micro-batches: shapes are per sample.
 * Sample inputs and the loss are ordinary tensors.
 *
 * This folder: the graph, its text form (text.c), groups of parameters by pattern (groups.c). Each operator is a file
 * in ops/, each family of networks a file zoo_NAME.c. See docs/design/model.md. */
#ifndef MODEL_GRAPH_H
#define MODEL_GRAPH_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "conf/conf.h"

enum {
    MAX_DIMS = 6, MAX_SPACE = 4, MAX_IN = 8, MAX_OUT = 8, MAX_LIST = 8, MAX_PARAM = 5, MAX_ATTR = 8, MAX_INPUTS = 8
};
enum dtype { F32, F64, I64, U8, BF16, I32, F16, I8, DTYPES };
size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t);                   /* in safetensors' spelling: F32, I64, BF16 */
bool dtype_floats(enum dtype t);                        /* only such tensors have gradients */

struct shape { int n; int64_t d[MAX_DIMS]; };
int64_t shape_count(const struct shape *s);             /* product; 1 for n = 0 */
bool shape_equal(const struct shape *a, const struct shape *b);
char *shape_text(const struct shape *s, char buf[96]);  /* "64x32x32" */

/* Data of each sample, filled by a field of the data set. A target is what a loss compares with. */
enum role { ROLE_SAMPLE, ROLE_TARGET };
struct input { enum role role; int tensor, line; };     /* line: of graph text, 0 if built */

/* A value of a micro-batch: `shape` elements of `type` per sample. */
struct tensor {
    /* unique; the zoo's inputs are "input" and "labels"; a node's first output has its name */
    const char *name;
    struct shape shape;
    enum dtype type;
    int producer;                                       /* node, or -1: a graph input */
    /* nodes that read it, ascending; a node that reads it twice occurs twice */
    int n_readers, *reader;
    /* a parameter is upstream (R10); otherwise no gradient is computed or sent */
    bool needs_grad;
};

/* trained; running statistic (F32); num_batches_tracked (I64, one element); what earlier samples left for later ones
 * (F32): begins at zero, and is in no file */
enum param_kind { PARAM_WEIGHT, PARAM_STAT, PARAM_COUNTER, PARAM_CACHE };
/* uniform in +-scale; normal with deviation scale; scale itself */
enum param_init { INIT_ZERO, INIT_ONE, INIT_UNIFORM, INIT_NORMAL, INIT_CONSTANT, N_INITS };

/* A persistent tensor. The order in graph->param is canonical: by first use, within a node in the operator's order. */
struct param {
    const char *name;                                   /* state_dict name: "layer1.0.conv1.weight" */
    struct shape shape;                                 /* logical, as in files unless turned */
    enum dtype type;
    enum param_kind kind;
    enum param_init init; double scale;
    bool turned;                                        /* files have its two dimensions in the other order */
    double lr_factor, decay_factor;                     /* default 1 */
    bool frozen;                                        /* never updated, no gradient */
    bool coded;                                         /* stored in 8 bits (model.load_in_8bit) */
    bool base;                                          /* a base weight, see model/lora.h: in no file of the run */
    /* every use: node and index in node->param; several uses = tied (R8) */
    int n_uses, *use_node, *use_slot;
};

/* A_INTS, A_LIST: n and i; A_INT, A_BOOL, A_WORD (number of the word): i[0]; A_REAL: r */
struct attr_value { int n; int64_t i[MAX_LIST]; double r; };

struct node {
    /* unique, dotted as in torchvision: "layer1.0.conv1", "layer1.0.relu.2" */
    const char *name;
    /* torchsummary's name: class of the module ("Conv2d"); NULL: no row of its own */
    const char *layer;
    const struct op_kind *op;
    struct attr_value attr[MAX_ATTR];                   /* in the order of the operator's attribute table */
    int n_in, in[MAX_IN];                               /* tensors */
    int n_out; union { int out, outs[MAX_OUT]; };       /* tensors, one after the other; out: the first */
    int n_param, param[MAX_PARAM];                      /* graph->param */
    /* has statistics, and all its weights are frozen: computes as in evaluation and keeps its statistics */
    bool fixed;
    int line;                                           /* of graph text, 0 if built */
};

/* A composite module (torchvision's Bottleneck): a summary row after the nodes before `end`. */
struct container { const char *name, *layer; int out, end; };

struct graph {
    struct arena *mem;
    const char *name;                                   /* "resnet50" */
    const char *file;                                   /* of graph text, for messages; NULL if built */
    struct node *node; int n_nodes;
    struct tensor *tensor; int n_tensors;
    struct param *param; int n_params;
    struct input *input; int n_inputs;
    int loss;                                           /* tensor; -1: none */
    /* what the output is compared with, even if prediction left out the loss; NULL: unknown */
    const struct op_kind *loss_op;
    int output;                                         /* the loss's input: the network's own result */
    struct container *container; int n_containers;
};

/* Building. The builder keeps the first error; graph_finish returns it. */
struct graph_builder;
struct graph_builder *graph_begin(const char *name, const char *file);
/* F32, BF16, U8, I32 or I64. Only I64 may be a single number, of shape n = 0: a class. Returns the tensor. */
int graph_input(struct graph_builder *b, const char *name, enum role role, const struct shape *s, enum dtype t);
/* A node to add: attrs in the graph text's syntax, "kernel=3 stride=2 bias=no"; layer may be NULL. */
struct graph_node {
    const char *op, *name, *layer, *attrs;
    int n_in, in[MAX_IN];
    const char *more[MAX_OUT - 1];                      /* names of the outputs behind the first; NULL: no more */
};
int graph_add(struct graph_builder *b, const struct graph_node *n);      /* returns its first output; others follow */
int graph_add1(struct graph_builder *b, const char *op, const char *name, const char *layer, const char *attrs, int in);
/* A node with two inputs, no attributes and no layer. */
int graph_add2(struct graph_builder *b, const char *op, const char *name, int x, int y);
/* Shares node `name`'s parameter slot k with node `other`'s slot k2 (same shape). */
void graph_tie(struct graph_builder *b, const char *name, int k, const char *other, int k2);
/* Changes the initialisation of node `name`'s parameter slot k (zero_init_residual). */
void graph_init(struct graph_builder *b, const char *name, int k, enum param_init init, double scale);
/* Names node `name`'s parameter slot k `param` instead of "NODE.suffix": some parameters in torch belong to no
 * layer. */
void graph_name(struct graph_builder *b, const char *name, int k, const char *param);
/* Marks the end of a composite module (summary rows, in call order): "layer1.0", "Bottleneck", its output tensor. */
void graph_container(struct graph_builder *b, const char *name, const char *layer, int out);
/* Tries a layer's name and its leading components: layer1.0.conv1, layer1.0, layer1. */
struct suggest;                                         /* base/suggest.h */
void layer_names_try(struct suggest *s, const char *name);
/* Infers shapes, lists readers and parameters, checks; frees the builder. NULL on failure (78; 65 with FILE:LINE for
 * graph text). */
struct graph *graph_finish(struct graph_builder *b, int output, int loss, struct err *e);
void graph_free(struct graph *g);
const struct shape *graph_shape(struct graph_builder *b, int tensor);   /* inferred so far; NULL after an error */

/* The model of a configuration: zoo or graph text, plus the loss operator. classes, input, loss come from conf. Graph
 * text decides them itself; a different value in conf is 78. For predictions (run.predict) the model has no loss,
 * scores or targets. */
struct graph *model_build(const struct conf *c, struct err *e);
const char *model_loss(const struct graph *g);          /* the word of train.loss for its loss; NULL: none */

/* Graph text: a printed form with exact inverse (docs in mpstaged.conf(5), GRAPH TEXT). */
void graph_print(const struct graph *g, struct text *out);
struct graph *graph_parse(const char *file, const char *s, size_t n, struct err *e);

/* Scores of a network besides its output: rows of its loss operator (op_kind.rows), then of other operators that have
 * rows. If the network has a loss, it is the first. */
enum { MAX_SCORES = 32 };
struct graph_score { const char *name; int tensor, numerator, denominator; };
struct scores { int n; struct graph_score of[MAX_SCORES]; };
void graph_scores(const struct graph *g, struct scores *s);   /* up to MAX_SCORES: graph_finish checks the number */

int graph_node_find(const struct graph *g, const char *name);           /* -1 if not found */
int graph_tensor_find(const struct graph *g, const char *name);         /* -1 if not found */
bool graph_wants_grad(const struct graph *g, const struct node *n);     /* does one of its outputs? */
bool graph_generates(const struct graph *g);            /* has a cache: its samples are tokens of sequences */
enum { DECODE_ROWS = 32 };                              /* the most sequences that such a network continues at once */
size_t graph_param_bytes(const struct graph *g, int param);             /* of the values alone */
int graph_input_first(const struct graph *g, enum role role);           /* its tensor; -1: none */
int graph_input_find(const struct graph *g, int tensor);                /* index in graph->input; -1: a node's output */
bool graph_input_is(const struct graph *g, int tensor, enum role role); /* false for a node's output */
/* Values of an integer input are 0 to the result - 1: the minimum over its readers; 0: no limit. */
int64_t graph_input_range(const struct graph *g, int tensor);
int64_t graph_input_ignored(const struct graph *g, int tensor);         /* op_kind.ignored of labels; 0: none */
uint64_t graph_flops(const struct graph *g, int node);                  /* forward, multiply-adds x 2, of one sample */

/* torchsummary's table: same rows, order, totals, each layer under its own name and torchsummary's. With a run:
 * multiply-adds and stage of each layer, training memory, and a line per stage. At most `most` columns wide, if the
 * contents permit. */
struct summary_run {
    const int *stage_of;                                 /* per node */
    const char *precision, *optimizer;
    uint64_t parameters, statistics, gradients, buffers; /* bytes during training; buffers: the optimizer's */
};
/* The layer of a node, as torchsummary shows it; in a graph without layers every operator is one. NULL: part of another
 * layer, or the loss. */
const char *graph_layer(const struct graph *g, int node);
void graph_summary(const struct graph *g, const struct summary_run *r, int most, struct text *out);
char *graph_summary_json(const struct graph *g, const struct summary_run *r);   /* free() it */

#endif
