/* Networks of ONNX files. Pure; any thread. */
#ifndef MODEL_ONNX_ONNX_H
#define MODEL_ONNX_ONNX_H
#include "base/err.h"
#include "base/text.h"
#include "model/graph.h"

bool onnx_is(const char *path);                         /* does the name end with .onnx? */

/* Where the values of a weight lie: in memory, or in a file of external data (in: its path, which is given; at: bytes
 * from its begin). type: one of safetensors' names. shape: as in the file. */
struct onnx_weight { const char *name; enum dtype type; struct shape shape; const void *values; const char *in;
                     uint64_t at, bytes; };
/* The network as graph text, and its weights in the order of their first use. */
struct onnx_model { struct text text; struct onnx_weight *weight; int n; struct arena *mem; void *file; };
/* 66: the file is missing; 65 with FILE: the file is damaged, or the node that cannot be said, by name and operator;
 * 78: built without protobuf-c. */
int onnx_open(const char *path, struct onnx_model *m, struct err *e);
void onnx_close(struct onnx_model *m);

#endif
