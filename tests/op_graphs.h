/* Small graphs from short texts, and tables of them, for tests that compare a backend's kernels with the reference. A
 * wrong text aborts. */
#ifndef TESTS_OP_GRAPHS_H
#define TESTS_OP_GRAPHS_H
#include "model/op.h"

/* An example of an operator: "3x4x4 kernel=2"; with several inputs "3x4x4 + 3x4x4", or "3x4x4 + =0" if the second is
 * the first; of a loss "5 + class", "5 + vector"; of integers "16 I64 count=9 features=4". */
struct graph *op_graph_example(const struct op_kind *op, const char *s);

/* The first of a node's inputs that is the same tensor as input k. */
int op_graph_first(const struct node *n, int k);
/* Adds the gradient of input k, of n values, to that of the first input that is the same tensor, and frees it. */
void op_graph_twice_add(const struct op_call *c, int k, size_t n);

/* n values of a graph input of I32 or I64, in steps of `step`: below its range, or below the output's number of
 * classes. */
void op_graph_integers(const struct graph *g, int tensor, int step, size_t n, void *x);

/* A chain "shape; op attrs; op attrs @2": each operator reads the previous one; @k is a further input, the output of
 * the k-th operator (0: the input), ^k replaces the first input. */
struct graph *op_graph_chain(const char *s);

/* Chains: convolutions, each followed by a branch, so that its input has two readers and gradients are also added;
 * batch norms, alone and before [additions and] ReLUs. */
enum { OP_GRAPH_CONVS = 17, OP_GRAPH_NORMS = 9 };
extern const char *const op_graph_convs[OP_GRAPH_CONVS], *const op_graph_norms[OP_GRAPH_NORMS];
#endif
