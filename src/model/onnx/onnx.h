/* Networks and weights of ONNX files (https://onnx.ai/onnx/operators). Pure; any thread.
 *
 * import.c goes through the nodes of a file. A value (value.h) is known, or it is a way to look at a tensor of our
 * graph: transposed, reshaped, cut. What only changes the way costs no node. Functions of one value are found by
 * their values (unary_find.c), attention and norms by what they compute (attention.c, norms.c). A sample is computed as
 * a batch of one, so the dimension of the batch never counts. */
#ifndef MODEL_ONNX_ONNX_H
#define MODEL_ONNX_ONNX_H
#include "model/graph.h"

bool onnx_is(const char *path);                         /* does the name end with .onnx? */

/* What the network is wanted for. input: dimensions of a sample, for those that the file leaves open; n = 0: none.
 * most: numbers that may be computed from known ones; 0: ONNX_KNOWN, enough for masks of 2048 x 2048. */
#define ONNX_KNOWN (INT64_C(1) << 26)
struct onnx_ask { struct shape input; bool predicts; int64_t most; };
/* loss: a decoder's head is its loss, too; -1: the output needs one. */
struct onnx_net { int output, loss; };
/* Adds the network of a file to a builder. 66: the file is missing; 65 with FILE: it is damaged, or has a node that
 * cannot be said, by name and operator; 78: built without protobuf-c. */
int onnx_build(struct graph_builder *b, const char *path, const struct onnx_ask *ask, struct onnx_net *net,
               struct err *e);

/* A tensor of floating-point numbers in the file. values: in memory; NULL: `bytes` at `at` of the file `in`, a path.
 * type: one of safetensors' names. */
struct onnx_weight { const char *name, *type; struct shape shape; const void *values; const char *in;
                     uint64_t at, bytes; };
struct onnx_weights { int n; struct onnx_weight *of; struct onnx_file *file; };
/* All of them, under the names that the graph's parameters have. The same errors. */
int onnx_weights_open(const char *path, struct onnx_weights *w, struct err *e);
void onnx_weights_close(struct onnx_weights *w);

#endif
