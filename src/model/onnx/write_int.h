/* What the operators of write_ops.c use to add nodes. For this folder only. */
#ifndef MODEL_ONNX_WRITE_INT_H
#define MODEL_ONNX_WRITE_INT_H
#include "base/name_table.h"
#include "model/op.h"

/* Where a value has its channels: behind the samples, or last. ANY: where the first input has them. */
enum onnx_layout { ONNX_FIRST, ONNX_LAST, ONNX_ANY };

/* The numbers are those of AttributeProto.AttributeType. */
enum onnx_attr_type { ONNX_FLOAT = 1, ONNX_INT = 2, ONNX_WORD = 3, ONNX_FILL = 4, ONNX_INTS = 7 };
struct onnx_attr { const char *name; enum onnx_attr_type type; int n; const int64_t *v; int64_t i; double f;
                   const char *s; };
#define A_FLOAT(key, x) {.name = key, .type = ONNX_FLOAT, .f = x}
#define A_NUMBER(key, x) {.name = key, .type = ONNX_INT, .i = x}
#define A_TEXT(key, x) {.name = key, .type = ONNX_WORD, .s = x}
#define A_VALUES(key, count, x) {.name = key, .type = ONNX_INTS, .n = count, .v = x}
#define A_FILLED(key, x) {.name = key, .type = ONNX_FILL, .f = x}   /* a tensor of one float */
#define ATTRS(...) (const struct onnx_attr[]){__VA_ARGS__, {0}}
#define INPUTS(...) (const char *const[]){__VA_ARGS__, NULL}       /* "": left out */

/* name: of the value with its channels first and last; NULL: not made so far. native: where it was made. */
struct onnx_value { const char *name[2]; enum onnx_layout native; };

struct onnx_messages;
struct onnx_writer {
    const struct graph *g;
    struct arena *mem;
    struct onnx_messages *made;                          /* nodes and constants so far */
    struct name_table known;                             /* names of values that are constants or the same for all */
    struct onnx_value *value;                            /* of each tensor */
    bool *used;                                          /* of each parameter */
    /* the node being written, its inputs, and where these and its output have their channels */
    const struct node *node;
    const char *in[MAX_IN];
    bool last;
};

/* Adds a node whose value the same operator uses: returns the value's name. */
const char *writer_step(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at);
/* The same with n values. */
void writer_steps(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at, int n,
                const char **out);
/* Adds the node that makes the operator's outputs and bears its name. */
void writer_end(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at);
void writer_same(struct onnx_writer *w);                   /* the output is the first input */
void writer_first(struct onnx_writer *w);                  /* for ONNX_ANY: the first input gets its channels first */
/* Constants; equal ones are one. */
const char *writer_ints(struct onnx_writer *w, int n, const int64_t *v);
const char *writer_indices(struct onnx_writer *w, int64_t n);   /* 0, 1, 2 ... */
const char *writer_number(struct onnx_writer *w, double x);
/* Under that name: of the same name, the first stays. Names of the network have no slash. */
const char *writer_floats(struct onnx_writer *w, const char *name, const struct shape *s, const float *x);
/* Adds a node under the name of its value, which any node may read, unless there is one. */
void writer_shared(struct onnx_writer *w, const char *name, const char *op, const char *const *in,
                 const struct onnx_attr *at);
bool writer_known(const struct onnx_writer *w, const char *name);
const char *writer_param(struct onnx_writer *w, int slot); /* as in weight files */
/* A matrix of the graph, or turned: with its dimensions in the other order. */
const char *writer_matrix(struct onnx_writer *w, int slot, bool turned);

static inline const struct shape *writer_shape(const struct onnx_writer *w)   /* of a sample of the first input */
{
    return &w->g->tensor[w->node->in[0]].shape;
}
static inline const struct shape *writer_out_shape(const struct onnx_writer *w)
{
    return &w->g->tensor[w->node->out].shape;
}
/* The axis of a dimension of a sample with n dimensions. */
static inline int64_t writer_axis(const struct onnx_writer *w, int n, int64_t dim)
{
    return !w->last ? dim + 1 : dim ? dim : n;
}

struct onnx_op { const char *name; enum onnx_layout wants; void (*write)(struct onnx_writer *w); };
const struct onnx_op *onnx_op_find(const char *name);    /* NULL: no counterpart */

#endif
