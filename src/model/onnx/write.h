/* A network for inference as an ONNX file: opset 17, IR version 8. write.c makes the file, write_ops.c has a row for
 * each operator. */
#ifndef MODEL_ONNX_WRITE_H
#define MODEL_ONNX_WRITE_H
#include <stdatomic.h>
#include "base/err.h"
#include "model/graph.h"

#define ONNX_DATA ".data"                                /* FILE.onnx.data has the weights that FILE.onnx cannot hold */

struct onnx_note { const char *key, *value; };           /* of metadata_props */
struct onnx_output {
    const char *path, *version;                          /* the file; of this program */
    uint64_t most;                                       /* bytes of a file; above 2 GiB - 1 no reader takes one */
    const struct onnx_note *note; int n_notes;
    /* The values of a parameter of the graph, in the order of weight files: fills buf, or sets *at, which is buf. */
    int (*values)(void *ctx, const char *param, void *buf, const void **at, struct err *e);
    void *ctx;
    const atomic_int *stop;                              /* NULL, or a word that ends writing (75) when set */
};
struct onnx_written { int nodes; uint64_t bytes, outside; };   /* outside: of FILE.onnx.data; 0: there is none */
/* Writes what the output of a graph without loss depends on. Dropout and the like vanish. Samples have a first
 * dimension N of any size. The output has its channels first; of a network on integers, such as tokens, last. An I32
 * input "positions" becomes 0, 1, 2 ...: a sample is a text from its begin. The same arguments give the same bytes. An
 * existing file is replaced. 78, or 65 for graph text: the first operator without a counterpart, by its node; 73, 74,
 * 75; 78 if the program was built without protobuf-c. */
int onnx_write(const struct graph *g, const struct onnx_output *o, struct onnx_written *w, struct err *e);

#endif
